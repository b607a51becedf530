"""The analytic route: the time of a launch in closed form, for one launch or a million.

What a tile of k demands of each resource (`demands`, with what lacking registers cost, `spills`, and how loads are
waited for, `load_schedules`), joined into rounds of blocks (`rounds`) and waves of a launch (`launch_waves`).
`gemmsim.predict` composes them.
"""

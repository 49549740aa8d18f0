"""Power of a domain: load through the capacity model, and a history that fits the present work.

work_watts     watts of boards that work, from ``capacity``
load_power     power = load through that model + residual, while load explains it
held_bins      bins in which caps held work back tell no demand
present_work   a history as if the present pods had always run
present_level  since when the history is of the present at all
present_peaks  the window's peak from the present, for a history that is not like it
    present_floor  where that takes the place of the models' peaks
"""

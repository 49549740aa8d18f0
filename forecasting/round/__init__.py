"""One round of the forecaster, from its targets to their answers.

    forecast_round.step
      ├─ round_reading    histories, series by series (patience)
      ├─ round_asides     what stands beside the draw of domains
      ├─ round_group      targets that are computed together; target_tree: parts of which
      ├─ group_events     what is planned for each, services' launches as watts of their domain
      ├─ group_rehearsal  newcomers' histories, here or at a rehearsal_desk beside the rounds
      └─ group_answers    the engine is asked; who spoils it is left out (each_alone)

In: targets and the ``round_state`` of the round before. Out: a ``target_forecast`` each.
"""

"""Which replicas of which GPU type at which cap serve a demand at the least cost.

``mix_problem`` the question, ``mix_model`` the mixed-integer program, ``mix_solution`` the answer,
``mix_checker`` its judge (shares no code with the model), ``mix_explain`` what each constraint
costs, ``mix_conflict`` why a demand cannot be met. Decision: docs/adr/0018-gpu-mix.md.
"""

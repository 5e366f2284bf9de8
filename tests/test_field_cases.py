"""Which tests hold which case of the field's failures on losses, masks, top-K rows, anchors and averages.

The cases are collected from public issue threads, numbered as there; each stands for its kind. Not covered here: the
cases on plugins, evaluation tables and workflows, which their rooms' tests name in their docstrings.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

# case: (what goes wrong, the tests that show it does not here)
CASES: dict[int, tuple[str, list[str]]] = {
    1: (
        "a stale log-prob turns the step into inf",
        [
            "methods/test_catalogue_limits.py::test_no_log_ratio_breaks_a_method",
            "methods/test_field_cases.py::test_a_stale_token_by_hand",
            "methods/test_limits.py::test_no_log_prob_breaks_a_measure_or_direction",
        ],
    ),
    3: (
        "garbage under the padding",
        [
            "methods/test_aggregation.py::test_field_case_3",
            "backend/test_loss.py::test_garbage_under_the_mask_changes_nothing",
            "agreement/test_losses_against_verl.py::test_aggregation_is_verls_on_clean_input",
        ],
    ),
    4: (
        "nothing valid in a micro-batch",
        [
            "methods/test_aggregation.py::test_an_empty_batch_is_a_zero_that_hangs_on_the_graph",
            "methods/test_catalogue_properties.py::test_an_empty_batch",
            "backend/test_aggregation.py::test_an_empty_mini_batch_moves_nothing",
            "backend/test_aggregation.py::test_value_and_gradient_are_the_definitions",
        ],
    ),
    5: ("groups without spread", ["methods/test_advantages.py::test_a_group_without_spread_is_silent"]),
    7: (
        "no end token, padding counted",
        ["backend/test_sampling.py::test_lengths_include_the_end_token_or_the_whole_limit"],
    ),
    8: ("entropy with impossible tokens", ["methods/test_vocabulary.py::test_impossible_and_certain_tokens"]),
    10: ("log-prob above zero", ["methods/test_limits.py::test_a_log_prob_above_zero_is_a_certain_token"]),
    11: ("rollout log-probs in bfloat16", ["backend/test_training.py::test_the_loss_sees_what_the_rollout_recorded"]),
    12: (
        "the first step is not on-policy",
        [
            "backend/test_requirements.py::test_without_updates_the_anchor_never_leaves_the_policy",
            "backend/test_mismatch.py::test_equal_precisions_agree",
            "backend/test_mismatch.py::test_micro_batches_change_nothing",
        ],
    ),
    15: (
        "one knob, two meanings",
        [
            "agreement/test_losses_against_verl.py::test_the_dppo_cap_is_a_key_of_its_own",
            "methods/test_field_cases.py::test_the_ratio_cap_is_its_own_option",
        ],
    ),
    17: (
        "clipped value thrown away",
        ["methods/test_field_cases.py::test_clip_higher_is_not_plain_clip"],
    ),
    19: (
        "a trust region that can never act",
        [
            "backend/test_requirements.py::test_a_setting_that_cannot_meet_a_need_is_refused",
            "backend/test_requirements.py::test_every_method_names_the_settings_it_lacks",
            "backend/test_requirements.py::test_the_worker_refuses_a_degenerate_region_that_an_override_made",
            "methods/test_catalogue_properties.py::test_on_policy_g_is_the_advantage",
            "methods/test_field_cases.py::test_on_policy_every_method_is_plain_policy_gradient",
        ],
    ),
    21: (
        "setting patched in the driver only",
        [
            "backend/test_bad_input.py::test_a_worker_that_runs_something_else_is_refused",
            "backend/test_bad_input.py::test_a_foreign_loss_and_foreign_options_are_noticed",
            "backend/test_requirements.py::test_a_loss_of_verls_own_takes_no_options_of_ours",
        ],
    ),
    22: (
        "clip fraction counts the wrong tokens",
        ["methods/test_field_cases.py::test_what_counts_as_clipped_is_what_lost_its_gradient"],
    ),
    24: (
        "KL estimators as losses",
        [
            "methods/test_estimators.py::test_values_by_hand",
            "methods/test_estimators.py::test_mean_gradients",
        ],
    ),
    25: (
        "sum or mean of log-ratios",
        ["methods/test_field_cases.py::test_gspo_needs_the_geometric_mean_and_tis_the_product"],
    ),
    26: (
        "other rows leak into a row",
        [
            "methods/test_catalogue_properties.py::test_other_rows_do_not_leak_into_a_row",
            "backend/test_catalogue.py::test_no_row_depends_on_the_others_of_its_micro_batch",
        ],
    ),
    27: (
        "CISPO with a gradient through the clip",
        [
            "methods/test_catalogue_by_hand.py::test_by_hand",
            "agreement/test_losses_against_verl.py::test_cispo_has_no_lower_bound_unless_asked_for",
        ],
    ),
    28: (
        "temperature on one side only",
        [
            "backend/test_mismatch.py::test_temperature_is_applied_on_both_sides",
            "backend/test_sampling.py::test_log_probs_are_at_the_temperature",
            "methods/test_temperature.py::test_one_sided_temperature_is_the_fields_case",
        ],
    ),
    29: ("truncated sampling", ["backend/test_bad_input.py::test_truncated_sampling_is_refused"]),
    30: (
        "sampled token outside the candidates",
        [
            "methods/test_support_rules.py::test_by_hand",
            "backend/test_sampling.py::test_the_support_holds_the_top_k_and_the_sampled_token",
        ],
    ),
    31: (
        "candidates recomputed or recorded",
        [
            "methods/test_top_k_rows.py::test_recorded_ids_are_a_set",
            "methods/test_top_k_rows.py::test_tied_logits_are_read_at_the_recorded_ids",
            "methods/test_top_k_rows.py::test_the_trainer_never_chooses_candidates",
            "backend/test_training.py::test_the_support_is_the_rollouts_own",
        ],
    ),
    34: (
        "mass above one",
        [
            "methods/test_top_k_rows.py::test_mass_above_one",
            "methods/test_support.py::test_tails_are_clamped_at_zero",
        ],
    ),
    35: (
        "which tail may be floored",
        [
            "methods/test_top_k_rows.py::test_only_the_current_tail_sits_under_the_logarithm",
            "methods/test_limits.py::test_a_floor_never_hides_a_missing_tail",
        ],
    ),
    36: ("padded vocabulary", ["methods/test_top_k_rows.py::test_a_padded_head"]),
    # Our rollouts record log-probs while they decode and score no prompt; what is left is the cache's own memory.
    38: ("prompt log-probs with a prefix cache", ["backend/test_vllm_training.py::test_same_run_same_bytes"]),
    40: ("precision of the two-outcome KL", ["methods/test_top_k_rows.py::test_the_two_outcome_kl_in_float32"]),
    42: ("numerator masked, denominator not", ["backend/test_aggregation.py::test_an_empty_response_is_not_there"]),
    43: ("divided twice", ["backend/test_aggregation.py::test_value_and_gradient_are_the_definitions"]),
    45: (
        "masked rows in a sequence mean",
        [
            "backend/test_aggregation.py::test_an_empty_response_is_not_there",
            "methods/test_aggregation.py::test_field_case_3",
        ],
    ),
    46: (
        "metrics scaled or pooled wrongly",
        [
            "backend/test_metrics.py::test_any_split_gives_the_same_numbers",
            "backend/test_training.py::test_metrics_are_weighted_by_tokens",
        ],
    ),
    48: (
        "ranks with unequal work",
        [
            "backend/test_metrics.py::test_any_split_gives_the_same_numbers",
            "backend/test_ray.py::test_two_ranks_give_one_rank_up_to_the_order_of_sums",
        ],
    ),
    55: (
        "missing prerequisite found late",
        [
            "backend/test_requirements.py::test_every_method_names_the_settings_it_lacks",
            "backend/test_requirements.py::test_the_loss_says_what_to_set",
            "backend/test_bad_input.py::test_a_top_k_method_needs_k",
        ],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_case_has_its_tests(case: int) -> None:
    """Each named test is defined, and not skipped by a decorator."""
    for name in CASES[case][1]:
        path, function = name.split("::")
        tree = ast.parse((TESTS / path).read_text())
        found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function]
        assert len(found) == 1, f"case {case}: {name} is not there"
        assert not any("skip" in ast.unparse(decorator) for decorator in found[0].decorator_list), name

#!/usr/bin/env python3
"""Public functions that compute or call user code set the library's floating-point control."""
import glob
import os
import re
import sys

from tap import done, ok

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src", "*", "*.c")
FUNCTION = re.compile(r"^MIRT_API ([^;{]*?)\b(mirt_\w+)\(([^{;]*)\) \{(.*?)(?:^\}|\}$)", re.MULTILINE | re.DOTALL)
# These record an operation or a layer, where mirt__record and mirt__layer_add do it, or return what they are given by value.
# Of those that take a model, a strategy or a function, these may be called while another thread uses it, or call one that may not;
# in the body of a function there is one thread alone.
FREE = set("""
    mirt_num_workers mirt_worker_index
    mirt_num_replicas mirt_num_devices mirt_num_threads mirt_model_by_name mirt_mobilenet_v2 mirt_resnet50 mirt_efficientnet_v2
    mirt_mobilenet_v3_small mirt_mobilenet_v3_large mirt_resnet18 mirt_resnet34 mirt_resnet101 mirt_vgg16
    mirt_model_output mirt_step mirt_num_weights mirt_weight mirt_request_stop mirt_model_class_names mirt_replica_rows
    mirt_output_scores mirt_output_loss mirt_strategy_destroy mirt_model_destroy mirt_function_destroy
    mirt_get_learning_rate mirt_input
    mirt_input_of mirt_output_of mirt_call mirt_distribute mirt_latest_checkpoint mirt_scale_learning_rate
    mirt_function_x mirt_function_y mirt_function_weights mirt_function_variable mirt_function_constant mirt_function_loss_term
    mirt_minimize mirt_apply_gradients mirt_assign mirt_function_result""".split())
BY_TYPE = re.compile(
    r"(mirt_tensor \*|mirt_initializer|mirt_constraint|mirt_optimizer|mirt_schedule|mirt_shape|mirt_array|mirt_dtype)")
# These only read or store what they are given, or call another public function with it.
ALONE = set("""
    mirt_version mirt_status_text mirt_last_error mirt_last_status mirt_last_cause mirt_cause_text mirt_machine mirt_phase_name
    mirt_learning_rate_scheduler mirt_progbar_logger mirt_terminate_on_nan mirt_dataset_size mirt_dataset_batches mirt_dataset_workers
    mirt_set_class_names mirt_class_names mirt_dataset_file mirt_image_create mirt_image_free mirt_mirrored
    mirt_multi_worker mirt_num_workers mirt_worker_index
    mirt_one_device mirt_central_storage mirt_num_replicas mirt_num_devices mirt_num_threads mirt_model_by_name mirt_mobilenet_v2
    mirt_mobilenet_v3_small mirt_mobilenet_v3_large mirt_resnet18 mirt_resnet34 mirt_resnet101 mirt_vgg16
    mirt_resnet50 mirt_efficientnet_v2 mirt_layer_add_loss mirt_model_output mirt_step
    mirt_num_weights mirt_weight mirt_request_stop mirt_logs_value mirt_history_last mirt_assign mirt_function_result
    mirt_model_class_names mirt_replica_rows mirt_create_temporary mirt_write_file mirt_printable
    mirt_output_scores mirt_output_loss mirt_array_free mirt_data_free""".split())


def main():
    found, open_to_all = {}, set()
    for path in sorted(glob.glob(SOURCES)):
        with open(path, encoding="utf-8") as file:
            for kind, name, arguments, body in FUNCTION.findall(file.read()):
                found[name] = (kind.strip(), "MIRT__ENTER;" in body or "MIRT__USE" in body)
                takes = re.match(r"(const )?mirt_(model|strategy|function) \*", arguments)
                if takes and "MIRT__USE" not in body:
                    open_to_all.add(name)
    bare = [name for name, (kind, enters) in found.items() if not enters and name not in ALONE and not BY_TYPE.match(kind)]
    stale = [name for name in ALONE if name not in found or found[name][1]]
    # Those that macros make are not found: none may take more than tensors.
    made = [path for path in glob.glob(SOURCES)
            if re.search(r"MIRT_API (?!mirt_tensor \*)[^;{]*mirt_##", open(path, encoding="utf-8").read())]
    ok(len(found) > 255 and not made, f"{len(found)} public functions; macros make only tensors: {made}")
    ok(not bare, f"each that computes enters the library: {' '.join(bare)}")
    ok(not stale, f"the list of those that need not is right: {' '.join(stale)}")
    ok(open_to_all == FREE, f"each that uses a strategy claims it: {' '.join(sorted(open_to_all ^ FREE))}")
    return done()


if __name__ == "__main__":
    sys.exit(main())

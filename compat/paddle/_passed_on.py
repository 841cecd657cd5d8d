"""Modules that only re-export names of FleetX, as rows of a table instead of files.

A row has a path below `paddle`, and what it re-exports: all public names of a module of FleetX, or
those that follow it (`static.clip: ClipGradByNorm`), renamed ones as `inverse=inv`. Modules with
definitions of their own are files.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

_ROWS = {
    "batch": "static.readers.batch: batch",
    "dataset.cifar": "data.cifar: test10 test100 train10 train100",
    "dataset.conll05": "data.conll05: get_dict get_embedding test",
    "dataset.flowers": "data.flowers: test train valid",
    "dataset.image": "data.bgr_image",
    "dataset.imdb": "data.imdb: build_dict test tokenize train word_dict",
    "dataset.imikolov": "data.imikolov: DataType build_dict test train",
    "dataset.movielens": "data.movielens",
    "dataset.mq2007": "data.mq2007",
    "dataset.sentiment": "data.sentiment: get_word_dict test train",
    "dataset.voc2012": "data.voc2012: test train val",
    "dataset.wmt14": "data.wmt14: gen get_dict test train",
    "dataset.wmt16": "data.wmt16: fetch get_dict test train validation",
    "distributed.collective": (
        "static.layers.collective: ReduceOp all_gather all_reduce barrier broadcast reduce "
        "scatter; static.nn.divided"
    ),
    "distributed.fleet.base.distributed_strategy": "paddle_rules.strategy: DistributedStrategy",
    "distributed.fleet.base.fleet_base": "fleet: Fleet",
    "distributed.fleet.base.private_helper_function": "runtime.network: wait_server_ready",
    "distributed.fleet.metrics.metric": "fleet.metrics: acc auc mae max min mse rmse sum",
    "distributed.fleet.utils.fs": (
        "checkpoint.file_system: FS FSFileExistsError FSFileNotExistsError LocalFS; "
        "checkpoint.hadoop_file_system: ExecuteError FSShellCmdAborted FSTimeOut "
        "HadoopFS=HDFSClient"
    ),
    "distributed.fleet.utils.ps_util": "fleet.servers.distributed_infer: DistributedInfer",
    "distribution": (
        "static.layers.distributions: Distribution Normal Uniform; static.tensor.distribution"
    ),
    "fluid.average": "static.metrics.weighted_average: WeightedAverage",
    "fluid.clip": "static.clip",
    "fluid.communicator": "paddle_rules.communicator: Communicator",
    "fluid.compiler": (
        "static.run.compiled_program: BuildStrategy CompiledProgram ExecutionStrategy"
    ),
    "fluid.contrib.memory_usage_calc": "static.inspection.statistics: memory_usage",
    "fluid.contrib.mixed_precision.amp_nn": (
        "static.mixed_precision.scale_ops: check_finite_and_unscale update_loss_scaling"
    ),
    "fluid.contrib.mixed_precision.decorator": (
        "static.mixed_precision: AutoMixedPrecisionLists OptimizerWithMixedPrecision decorate"
    ),
    "fluid.contrib.model_stat": "static.inspection.statistics: summary",
    "fluid.contrib.op_frequence": "static.inspection.statistics: op_freq_statistic",
    "fluid.contrib.reader.distributed_reader": (
        "static.readers.distributed_batches: distributed_batch_reader"
    ),
    "fluid.contrib.utils.hdfs_utils": (
        "checkpoint.hadoop_file_system: HadoopFSOf18=HDFSClient multi_download multi_upload"
    ),
    "fluid.data_feeder": (
        "static.readers.data_feeder: DataFeeder; static.building.argument_checks: check_dtype "
        "check_type check_variable_and_dtype convert_dtype"
    ),
    "fluid.dataset": "static.readers.file_datasets",
    "fluid.debugger": (
        "static.inspection.description_text; static.inspection.drawing: draw_block_graphviz"
    ),
    "fluid.default_scope_funcs": "static.run.scope_stack",
    "fluid.distribute_lookup_table": (
        "static.inspection.searching: find_distributed_lookup_table "
        "find_distributed_lookup_table_inputs find_distributed_lookup_table_outputs"
    ),
    "fluid.evaluator": "static.metrics.evaluators",
    "fluid.graphviz": "static.inspection.dot_graph",
    "fluid.incubate.checkpoint.auto_checkpoint": (
        "paddle_rules.epoch_range: TrainEpochRange train_epoch_range"
    ),
    "fluid.incubate.fleet.utils.fleet_barrier_util": (
        "paddle_rules.hadoop_barrier: check_all_trainers_ready"
    ),
    "fluid.incubate.fleet.utils.fleet_util": "paddle_rules.fleet_util: FleetUtil",
    "fluid.incubate.fleet.utils.hdfs": "checkpoint.hadoop_file_system: HadoopFSOf18=HDFSClient",
    "fluid.incubate.fleet.utils.utils": (
        "static.inspection.program_files: check_pruned_program_vars graphviz load_program "
        "parse_program program_type_trans save_program"
    ),
    "fluid.initializer": "static.initializer",
    "fluid.install_check": "static.run.self_check: run_check",
    "fluid.layer_helper": "static.building.layer_helper: LayerHelper",
    "fluid.layer_helper_base": "static.building.layer_helper: LayerHelper=LayerHelperBase",
    "fluid.layers.detection": (
        "static.layers.detection_anchors; static.layers.detection_boxes; "
        "static.layers.detection_output; static.layers.detection_targets; "
        "static.layers.regions: generate_mask_labels roi_perspective_transform"
    ),
    "fluid.layers.device": "static.layers.places",
    "fluid.layers.distributions": "static.layers.distributions",
    "fluid.layers.io": "static.readers.py_reader; static.layers: data load",
    "fluid.layers.layer_function_generator": "static.building.generated_layers",
    "fluid.layers.metric_op": "static.layers.metric: accuracy auc",
    "fluid.layers.rnn": (
        "static.layers.recurrent; static.layers: BeamSearchDecoder Decoder beam_search "
        "beam_search_decode dynamic_decode; static.layers.decode_helpers; "
        "static.layers.rnn_cells"
    ),
    "fluid.layers.utils": (
        "static.layers.structure: assert_same_structure copy_mutable_vars flatten "
        "hold_mutable_vars map_structure pack_sequence_as is_nested=is_sequence; "
        "static.layers.window_args: convert_to_list"
    ),
    "fluid.lod_tensor": "static.readers.lod_tensor: create_lod_tensor create_random_int_lodtensor",
    "fluid.metrics": "static.metrics.metrics_of_1x; static.metrics.detection_map",
    "fluid.net_drawer": "static.inspection.drawing: draw_graph; static.inspection.net_drawing",
    "fluid.nets": "static.nets",
    "fluid.parallel_executor": (
        "static.run.compiled_program: BuildStrategy ExecutionStrategy ParallelExecutor"
    ),
    "fluid.param_attr": "static.building.param_attr: ParamAttr WeightNormParamAttr",
    "fluid.profiler": "static.run.profiler",
    "fluid.regularizer": (
        "static.regularizer: L1Decay L1DecayRegularizer L2Decay L2DecayRegularizer "
        "WeightDecayRegularizer append_regularization_ops"
    ),
    "fluid.trainer_factory": "static.run.fetch_handler: FetchHandler FetchHandlerMonitor",
    "fluid.transpiler.collective": "paddle_rules.collective_transpiler: GradAllReduce LocalSGD",
    "fluid.transpiler.details.checkport": "runtime.network: wait_server_ready",
    "fluid.transpiler.details.program_utils": (
        "static.inspection.program_code; static.inspection.searching: delete_ops "
        "find_op_by_input_arg find_op_by_output_arg"
    ),
    "fluid.transpiler.geo_sgd_transpiler": "paddle_rules.transpiler: GeoSgdTranspiler",
    "linalg": "static.tensor.linalg: cholesky det inverse=inv matrix_power norm solve",
    "reader.decorator": (
        "static.readers.decorator; static.readers.multiprocess: multiprocess_reader"
    ),
    "regularizer": "static.regularizer: L1Decay L2Decay",
    "tensor.attribute": "static.tensor.attribute",
    "tensor.creation": "static.tensor.creation",
    "tensor.linalg": "static.tensor.linalg; static.tensor: transpose",
    "tensor.logic": "static.tensor.logic; static.tensor: is_tensor",
    "tensor.manipulation": "static.tensor.manipulation",
    "tensor.math": (
        "static.tensor.math; static.layers: mul; static.tensor: addmm broadcast_shape inverse "
        "kron mm trace"
    ),
    "tensor.random": "static.tensor.random",
    "tensor.search": "static.tensor.search",
    "tensor.stat": "static.tensor.stat; static.tensor: numel",
    "utils.plot": "static.inspection.curves: Curve=PlotData Ploter",
    "utils.profiler": (
        "static.run.profiled_steps: Profiler ProfilerOptions get_profiler; static.run.profiler"
    ),
    "vision.image": "data.image: get_image_backend image_load set_image_backend",
    "vision.transforms.transforms": "data.transforms",
}
PASSED_ON = {f"paddle.{path}": row for path, row in _ROWS.items()}


def fill(module: ModuleType) -> None:
    """Fill a module with the names of its row; its docstring is that of the first source."""
    names: dict[str, Any] = {}
    for part in PASSED_ON[module.__name__].split("; "):
        source, _, listed = part.partition(": ")
        home = importlib.import_module(f"fleetx.{source}")
        for name in listed.split() or home.__all__:
            old, _, new = name.partition("=")
            names[new or old] = getattr(home, old)
        first = home if len(names) > 1 else next(iter(names.values()))
        module.__doc__ = module.__doc__ or first.__doc__
    vars(module).update(names, __all__=sorted(names))

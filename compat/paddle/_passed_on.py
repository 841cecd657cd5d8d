"""Modules that only re-export names of FleetX, as rows of a table instead of files.

A row has a path below `paddle`, and what it re-exports: all public names of a module of FleetX, or
those that follow it (`static.clip: ClipGradByNorm`), renamed ones as `inverse=inv`. The docstring
is the sentence before `|`, by default that of the first source. Modules with definitions of their
own are files.
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
    "fluid.contrib.decoder": (
        "Decoders that run one cell in training and in a beam search. | static.layers.state_cell: "
        "InitState StateCell; static.layers.state_decoder: BeamSearchDecoder TrainingDecoder"
    ),
    "fluid.contrib.extend_optimizer": (
        "Optimizers with decoupled weight decay. | "
        "static.optimizer.decoupled: extend_with_decoupled_weight_decay"
    ),
    "fluid.contrib.layers": (
        "Further layers. | "
        "static.layers.contrib; static.layers.contrib_recommendation; static.layers.contrib_text; "
        "static.layers.stacked_rnn: BasicGRUUnit BasicLSTMUnit basic_gru basic_lstm"
    ),
    "fluid.contrib.memory_usage_calc": "static.inspection.statistics: memory_usage",
    "fluid.contrib.mixed_precision.amp_nn": (
        "static.mixed_precision.scale_ops: check_finite_and_unscale update_loss_scaling"
    ),
    "fluid.contrib.mixed_precision.decorator": (
        "static.mixed_precision: AutoMixedPrecisionLists OptimizerWithMixedPrecision decorate"
    ),
    "fluid.contrib.mixed_precision.fp16_lists": (
        "Which ops run in half precision. | "
        "static.mixed_precision: AutoMixedPrecisionLists CustomOpLists"
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
    "fluid.dataloader": (
        "Datasets and samplers that a DataLoader takes. | "
        "static.readers.combined_datasets: Dataset; static.readers.sampler: BatchSampler"
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
    "fluid.input": (
        "embedding and one_hot of Paddle 1.8: the last dimension of the input is kept. | "
        "static.layers.nn: embedding_v2=embedding; static.layers.search: one_hot_v2=one_hot"
    ),
    "fluid.install_check": "static.run.self_check: run_check",
    "fluid.io": (
        "Saving, loading, and readers. | "
        "static.io: get_parameter_value get_parameter_value_by_name get_program_parameter "
        "get_program_persistable_vars is_belong_to_optimizer is_parameter is_persistable load "
        "load_params load_persistables load_program_state load_vars save save_params "
        "save_persistables save_vars set_program_state load_inference_dir=load_inference_model "
        "save_inference_dir=save_inference_model; static.io.scope_values: "
        "valid_program=_get_valid_program; static.readers.batch: batch; static.readers.collate: "
        "default_collate_fn; static.readers.combined_datasets: Dataset; "
        "static.readers.generator_loader: PyReader; static.readers.loader: DataLoader; "
        "static.readers.multiprocess: multiprocess_reader; static.readers.sampler: BatchSampler; "
        "static.readers.decorator"
    ),
    "fluid.layer_helper": "static.building.layer_helper: LayerHelper",
    "fluid.layer_helper_base": "static.building.layer_helper: LayerHelper=LayerHelperBase",
    "fluid.layers.collective": (
        "Raw collective ops on variables. | static.layers.collective: allreduce=_allreduce "
        "broadcast_inplace=_broadcast c_allgather=_c_allgather c_allreduce=_c_allreduce "
        "c_broadcast=_c_broadcast c_reducescatter=_c_reducescatter "
        "c_sync_calc_stream=_c_sync_calc_stream c_sync_comm_stream=_c_sync_comm_stream"
    ),
    "fluid.layers.control_flow": (
        "Loops, branches, arrays and comparison. | static.layers: Assert DynamicRNN IfElse Print "
        "StaticRNN Switch While array_length array_read array_to_lod_tensor array_write case cond "
        "create_array equal greater_equal greater_than increment is_empty less_equal less_than "
        "lod_rank_table lod_tensor_to_array max_sequence_len merge_lod_tensor not_equal "
        "reorder_lod_tensor_by_rank shrink_memory split_lod_tensor switch_case while_loop; "
        "static.layers.control_flow: BlockGuard ConditionalBlock ConditionalBlockGuard "
        "select_input select_output; static.layers.while_loop: WhileGuard"
    ),
    "fluid.layers.detection": (
        "static.layers.detection_anchors; static.layers.detection_boxes; "
        "static.layers.detection_output; static.layers.detection_targets; "
        "static.layers.regions: generate_mask_labels roi_perspective_transform"
    ),
    "fluid.layers.device": "static.layers.places",
    "fluid.layers.distributions": "static.layers.distributions",
    "fluid.layers.io": "static.readers.py_reader; static.layers: data load",
    "fluid.layers.layer_function_generator": "static.building.generated_layers",
    "fluid.layers.learning_rate_scheduler": (
        "Learning rates that change with the step, as layers. | static.layers: cosine_decay "
        "exponential_decay inverse_time_decay linear_lr_warmup natural_exp_decay noam_decay "
        "piecewise_decay polynomial_decay decay_step_counter=_decay_step_counter"
    ),
    "fluid.layers.loss": (
        "Losses. | static.layers: bpr_loss center_loss cross_entropy edit_distance hsigmoid "
        "huber_loss kldiv_loss margin_rank_loss mse_loss nce npair_loss rank_loss "
        "sampled_softmax_with_cross_entropy sigmoid_cross_entropy_with_logits "
        "softmax_with_cross_entropy square_error_cost teacher_student_sigmoid_loss warpctc"
    ),
    "fluid.layers.metric_op": "static.layers.metric: accuracy auc",
    "fluid.layers.nn": (
        "Layers that are functions of variables. | static.layers: adaptive_pool2d adaptive_pool3d "
        "add_position_encoding addcmul addmm affine_channel affine_grid allclose "
        "autoincreased_step_counter batch_norm bilinear_tensor_product bmm brelu chunk_eval clamp "
        "clip clip_by_norm continuous_value_model conv2d conv2d_transpose conv3d conv3d_transpose "
        "cos_sim crf_decoding crop crop_tensor cross ctc_greedy_decoder data_norm deformable_conv "
        "deformable_roi_pooling diag_embed dice_loss dist dot dropout elementwise_add "
        "elementwise_div elementwise_equal elementwise_floordiv elementwise_max elementwise_min "
        "elementwise_mod elementwise_mul elementwise_pow elementwise_sub elu embedding expand "
        "expand_as fc filter_by_instag flatten flip fsp_matrix gather gather_nd gather_tree "
        "gaussian_random gaussian_random_batch_size_like get_tensor_from_selected_rows "
        "grid_sampler group_norm hard_sigmoid hard_swish hash im2sequence image_resize "
        "image_resize_short index_sample index_select inplace_abn instance_norm interpolate "
        "l2_normalize label_smooth layer_norm leaky_relu linear_chain_crf lod_append lod_reset "
        "log log1p log_loss log_softmax logical_and logical_not logical_or logical_xor logsumexp "
        "lrn matmul maxout mean mean_iou merge_selected_rows meshgrid mish mul multiplex nonzero "
        "one_hot pad pad2d pad_constant_like pixel_shuffle pool2d pool3d pow prelu prroi_pool "
        "psroi_pool py_func randint randn random_crop randperm rank reduce_all reduce_any "
        "reduce_max reduce_mean reduce_min reduce_prod reduce_sum relu relu6 reshape "
        "resize_bilinear resize_linear resize_nearest resize_trilinear roi_align roi_pool roll "
        "row_conv sampling_id scale scatter scatter_nd scatter_nd_add selu shape shard_index "
        "shuffle_channel sign similarity_focus size slice smooth_l1 soft_relu softmax "
        "space_to_depth spectral_norm split squeeze stack stanh strided_slice sum swish t "
        "temporal_shift topk transpose unbind unfold uniform_random "
        "uniform_random_batch_size_like unique unique_with_counts unsqueeze unstack where"
    ),
    "fluid.layers.ops": (
        "Functions of every element. | "
        "static.layers: abs acos asin atan ceil cos cosh cumsum erf exp floor gelu hard_shrink "
        "log1p logsigmoid pow reciprocal round rsqrt sigmoid sin sinh softplus softshrink "
        "softsign sqrt square tanh tanh_shrink thresholded_relu uniform_random"
    ),
    "fluid.layers.rnn": (
        "static.layers.recurrent; static.layers: BeamSearchDecoder Decoder beam_search "
        "beam_search_decode dynamic_decode; static.layers.decode_helpers; "
        "static.layers.rnn_cells"
    ),
    "fluid.layers.sequence_lod": (
        "Layers on sequences of different lengths. | static.layers: sequence_concat sequence_conv "
        "sequence_enumerate sequence_expand sequence_expand_as sequence_first_step "
        "sequence_last_step sequence_mask sequence_pad sequence_pool sequence_reshape "
        "sequence_reverse sequence_scatter sequence_slice sequence_softmax sequence_unpad"
    ),
    "fluid.layers.tensor": (
        "Creating, joining and converting variables. | "
        "static.layers: arange argmax argmin argsort assign cast concat create_global_var "
        "create_parameter create_tensor diag eye fill_constant fill_constant_batch_size_like full "
        "full_like has_inf has_nan isfinite kron linspace ones ones_like range reverse sums "
        "tensor_array_to_tensor trace tril triu zeros zeros_like"
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
    "fluid.transpiler.distribute_transpiler": (
        "Dividing programs between workers and parameter servers. | paddle_rules.server_config: "
        "DistributeTranspilerConfig DistributedMode HashName PSDispatcher RoundRobin "
        "ServerRuntimeConfig; paddle_rules.transpiler: DistributeTranspiler; "
        "paddle_rules.variable_blocks: VarBlock log same_or_split_var slice_variable"
    ),
    "fluid.transpiler.geo_sgd_transpiler": "paddle_rules.transpiler: GeoSgdTranspiler",
    "fluid.transpiler.ps_dispatcher": (
        "Assignment of variables to servers. | "
        "paddle_rules.server_config: HashName PSDispatcher RoundRobin"
    ),
    "io": (
        "Datasets, samplers and loaders. | "
        "static.readers.collate: default_collate_fn; static.readers.combined_datasets; "
        "static.readers.loader: DataLoader; static.readers.sampler: BatchSampler "
        "DistributedBatchSampler RandomSampler Sampler SequenceSampler WeightedRandomSampler"
    ),
    "linalg": "static.tensor.linalg: cholesky det inverse=inv matrix_power norm solve",
    "metric": (
        "Metrics: accuracy inside a program, and classes that accumulate over batches. | "
        "static.metrics.metrics_of_2x: Accuracy Auc Metric Precision Recall accuracy"
    ),
    "nn.clip": (
        "Clipping of gradients. | static.clip: ClipGradByGlobalNorm ClipGradByNorm ClipGradByValue"
    ),
    "nn.initializer": "First values of parameters. | static.nn.initializer",
    "nn.utils": (
        "Weight normalisation of layers. | static.nn.weight_norm: remove_weight_norm weight_norm"
    ),
    "optimizer.lr": "Learning rates that change with the step or the epoch. | static.lr",
    "reader.decorator": (
        "static.readers.decorator; static.readers.multiprocess: multiprocess_reader"
    ),
    "regularizer": "static.regularizer: L1Decay L2Decay",
    "static.amp": (
        "Training in half precision. | "
        "static.mixed_precision: AutoMixedPrecisionLists CustomOpLists decorate"
    ),
    "static.io": (
        "Saving and loading programs and their values. | static.io: deserialize_persistables "
        "deserialize_program get_program_persistable_vars is_parameter is_persistable load "
        "load_from_file load_inference_model load_program_state load_vars normalize_program save "
        "save_inference_model save_to_file save_vars serialize_persistables serialize_program "
        "set_program_state serialize_variables=_serialize_persistables; "
        "static.io.inference_program: append_fetch_ops prepend_feed_ops; static.io.scope_values: "
        "valid_program=_get_valid_program; static.protobuf.serialize: "
        "program_to_bytes=_serialize_program"
    ),
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
    "text.datasets": "Data sets of text by index, from local files. | data.text_datasets",
    "utils.plot": "static.inspection.curves: Curve=PlotData Ploter",
    "utils.profiler": (
        "static.run.profiled_steps: Profiler ProfilerOptions get_profiler; static.run.profiler"
    ),
    "vision.datasets": "Data sets of images, from local files. | data.vision_datasets",
    "vision.image": "data.image: get_image_backend image_load set_image_backend",
    "vision.models": "Classifiers of images. | static.models",
    "vision.ops": (
        "Operators of detection models. | "
        "static.layers.detection_boxes: yolo_box; static.layers.detection_targets: "
        "yolov3_loss=yolo_loss; static.nn.deformable_conv: DeformConv2D deform_conv2d"
    ),
    "vision.transforms.functional": (
        "Functions on images. | "
        "data.image: adjust_brightness adjust_contrast adjust_hue adjust_saturation center_crop "
        "crop hflip normalize pad resize rotate to_grayscale to_tensor vflip"
    ),
    "vision.transforms.transforms": "data.transforms",
}
PASSED_ON = {f"paddle.{path}": row for path, row in _ROWS.items()}
# Their layers take the element types of 1.8.
_NARROWED = ("control_flow", "loss", "nn", "ops", "sequence_lod", "tensor")


def fill(module: ModuleType) -> None:
    """Fill a module with the names, and the docstring, of its row."""
    names: dict[str, Any] = {}
    about, _, sources = PASSED_ON[module.__name__].rpartition(" | ")
    module.__doc__ = about or None
    for part in sources.split("; "):
        source, _, listed = part.partition(": ")
        home = importlib.import_module(f"fleetx.{source}")
        for name in listed.split() or home.__all__:
            old, _, new = name.partition("=")
            names[new or old] = getattr(home, old)
        first = home if len(names) > 1 else next(iter(names.values()))
        module.__doc__ = module.__doc__ or first.__doc__
    package, _, name = module.__name__.rpartition(".")
    if package == "paddle.fluid.layers" and name in _NARROWED:
        importlib.import_module("paddle.fluid.layers._narrow").narrow(names)
    public = sorted(name for name in names if not name.startswith("_"))
    vars(module).update(names, __all__=public)

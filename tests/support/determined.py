"""Names that Determined 0.38 defines, read from its published API and its configuration's schema: what people who come from
there know, and what docs/from-determined.md has to speak of. Names only."""

CONFIG_FIELDS = {
    "": (
        "bind_mounts checkpoint_policy checkpoint_storage data data_layer debug description entrypoint environment "
        "hyperparameters integrations internal labels log_policies max_restarts min_checkpoint_period "
        "min_validation_period name optimizations pbs perform_initial_validation preemption_timeout profiling project "
        "records_per_epoch reproducibility resources retention_policy scheduling_unit searcher security slurm "
        "tensorboard_storage workspace"
    ),
    "resources": (
        "agent_label devices is_single_node max_slots native_parallel priority resource_pool shm_size slots "
        "slots_per_trial weight"
    ),
    "environment": (
        "add_capabilities drop_capabilities environment_variables force_pull_image image pod_spec ports proxy_ports registry_auth"
    ),
    "optimizations": (
        "aggregation_frequency auto_tune_tensor_fusion average_aggregated_gradients average_training_metrics "
        "grad_updates_size_file gradient_compression mixed_precision tensor_fusion_cycle_time tensor_fusion_threshold"
    ),
    "reproducibility": "experiment_seed",
    "checkpoint_storage": (
        "access_key account_url bucket checkpoint_path connection_string container container_path credential "
        "endpoint_url host_path prefix propagation save_experiment_best save_trial_best save_trial_latest secret_key "
        "storage_path tensorboard_path type"
    ),
    "searcher": (
        "bracket_rungs budget divisor max_concurrent_trials max_length max_rungs max_time max_trials metric mode name "
        "num_rungs smaller_is_better source_checkpoint_uuid source_trial_id stop_once time_metric train_stragglers unit"
    ),
    "log_policies": "action name pattern",
}
"""By section."""
SEARCH_METHODS = "adaptive adaptive_asha adaptive_simple async_halving custom grid random single sync_halving"
HYPERPARAMETERS = {
    "const": "val",
    "categorical": "vals",
    "double": "count maxval minval",
    "int": "count maxval minval",
    "log": "base count maxval minval",
}
API = {
    "PyTorchTrial": (
        "__init__ build_callbacks build_training_data_loader build_validation_data_loader evaluate_batch "
        "evaluate_full_dataset evaluation_reducer get_batch_length train_batch"
    ),
    "PyTorchTrialContext": (
        "autocast_forward_pass backward configure_apex_amp current_train_batch current_train_epoch device distributed "
        "env experimental from_config get_data_config get_enable_tensorboard_logging get_experiment_config "
        "get_experiment_id get_global_batch_size get_hparam get_hparams get_initial_batch get_per_slot_batch_size "
        "get_stop_requested get_tensorboard_path get_tensorboard_writer get_trial_id get_trial_seed is_epoch_end "
        "is_epoch_start lr_schedulers models optimizers profiler set_enable_tensorboard_logging set_profiler "
        "set_stop_requested step_optimizer to_device wrap_lr_scheduler wrap_model wrap_optimizer wrap_reducer "
        "wrap_scaler"
    ),
    "PyTorchCallback": (
        "load_state_dict on_checkpoint_end on_checkpoint_load_start on_checkpoint_save_start on_checkpoint_upload_end "
        "on_checkpoint_write_end on_training_epoch_end on_training_epoch_start on_training_start "
        "on_training_workload_end on_trial_shutdown on_trial_startup on_validation_end on_validation_epoch_end "
        "on_validation_epoch_start on_validation_start state_dict"
    ),
    "MetricReducer": "cross_slot_reduce per_slot_reduce reset",
    "Reducer": "AVG MAX MIN SUM",
    "LRScheduler": "StepMode get_last_lr load_state_dict state_dict step",
    "LRScheduler.StepMode": "MANUAL_STEP STEP_EVERY_BATCH STEP_EVERY_EPOCH STEP_EVERY_OPTIMIZER_STEP",
    "KerasTrialContext": (
        "configure_fit distributed env from_config get_data_config get_experiment_config get_experiment_id "
        "get_global_batch_size get_hparam get_hparams get_initial_batch get_per_slot_batch_size get_stop_requested "
        "get_tensorboard_path get_trial_id get_trial_seed set_stop_requested wrap_dataset wrap_model wrap_optimizer"
    ),
    "KerasTrial": "__init__ build_model build_training_data_loader build_validation_data_loader keras_callbacks session_config",
    "Run": "alert checkpoint close distributed info preempt profiler searcher start train",
    "Checkpoints": "delete download get_metadata restore_path store_path upload",
    "Operation": "length report_completed report_progress",
}
"""By the name of the class in Tenuto: TFKerasTrial is KerasTrial, core.Context is Run, its checkpoint context is Checkpoints,
and core.SearcherOperation is Operation."""
MODULES = {
    "tenuto.pytorch": (
        "Batch CheckpointLoadContext DataLoader Epoch LRScheduler MetricReducer PyTorchCallback "
        "PyTorchExperimentalContext PyTorchTrial PyTorchTrialContext Reducer TorchData TrainUnit Trainer "
        "adapt_batch_sampler data_length init load_trial_from_checkpoint_path samplers to_device"
    ),
    "tenuto.keras": (
        "ArrayLike DeterminedCallback InputData SequenceAdapter TFKerasTrial TFKerasTrialContext TensorBoard callbacks "
        "load_model_from_checkpoint_path"
    ),
    "tenuto": (
        "ClusterInfo EnvContext ExperimentConfig InvalidHP LegacyTrial ResourcesInfo TrialContext TrialInfo core errors "
        "get_cluster_info import_from_path init util"
    ),
}
"""`tenuto` also stands for determined.core, whose `init` it has."""

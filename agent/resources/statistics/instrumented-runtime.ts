/**
 * Wraps the runtime to measure every request (`kubelet_runtime_operations_*`), and to count started pods and
 * containers.
 */
import type { Clock } from '../../../api/machinery/clock.ts';
import type { MetricsRegistry } from '../../../api/component/metrics.ts';
import type { ContainerConfig, ContainerId, Runtime, SandboxConfig } from '../../runtime/runtime.ts';

/** The metric's operation name by method. Methods that are absent (long-lived streams, close) are not measured. */
const OPERATIONS: Readonly<Partial<Record<keyof Runtime, string>>> = {
  info: 'version',
  conditions: 'status',
  setPodCidr: 'update_runtime_config',
  runSandbox: 'run_podsandbox',
  stopSandbox: 'stop_podsandbox',
  removeSandbox: 'remove_podsandbox',
  sandboxStatus: 'podsandbox_status',
  sandboxProcess: 'podsandbox_status',
  listSandboxes: 'list_podsandbox',
  createContainer: 'create_container',
  startContainer: 'start_container',
  stopContainer: 'stop_container',
  removeContainer: 'remove_container',
  containerStatus: 'container_status',
  listContainers: 'list_containers',
  updateResources: 'update_container',
  reopenLog: 'reopen_container_log',
  checkpoint: 'checkpoint_container',
  execSync: 'exec_sync',
  listImages: 'list_images',
  imageStatus: 'image_status',
  pullImage: 'pull_image',
  removeImage: 'remove_image',
  imageFilesystems: 'image_fs_info',
  containerStats: 'list_container_stats',
  sandboxStats: 'list_podsandbox_stats',
};

const OPERATION_BUCKETS = Array.from({ length: 14 }, (_none, index) => Number((0.005 * 2.5 ** index).toPrecision(16)));

const CONTAINER_TYPES: Readonly<Record<ContainerConfig['kind'], string>> = {
  regular: 'container',
  init: 'init_container',
  ephemeral: 'ephemeral_container',
};

/** Counts starts of containers that failed, by the reason that the container's status shows. */
export function startErrorMetrics(metrics: MetricsRegistry): (kind: ContainerConfig['kind'], reason: string) => void {
  const errors = metrics.counter({
    name: 'kubelet_started_containers_errors_total',
    help: 'Cumulative number of errors when starting containers',
    labels: ['container_type', 'code'],
  });
  return (kind, reason) => errors.with(CONTAINER_TYPES[kind], reason).inc();
}

/** Returns a runtime with the same behaviour, whose operations have the kubelet's names in the metrics. */
export function instrumentRuntime(runtime: Runtime, metrics: MetricsRegistry, clock: Clock): Runtime {
  const total = metrics.counter({
    name: 'kubelet_runtime_operations_total',
    help: 'Cumulative number of runtime operations by operation type.',
    labels: ['operation_type'],
  });
  const errors = metrics.counter({
    name: 'kubelet_runtime_operations_errors_total',
    help: 'Cumulative number of runtime operation errors by operation type.',
    labels: ['operation_type'],
  });
  const durations = metrics.histogram({
    name: 'kubelet_runtime_operations_duration_seconds',
    help: 'Duration in seconds of runtime operations. Broken down by operation type.',
    labels: ['operation_type'],
    buckets: OPERATION_BUCKETS,
  });
  const starts = startMetrics(metrics);
  const methods = new Map<PropertyKey, unknown>();
  const wrap = (name: keyof Runtime, method: (...args: unknown[]) => unknown): unknown => {
    const operation = OPERATIONS[name];
    if (operation === undefined) return method.bind(runtime);
    const [count, duration] = [total.with(operation), durations.with(operation)];
    return async (...args: unknown[]): Promise<unknown> => {
      count.inc();
      const from = clock.monotonic();
      try {
        const answer = await method.apply(runtime, args);
        starts.done(name, args, (clock.monotonic() - from) / 1000, answer);
        return answer;
      } catch (error) {
        errors.with(operation).inc();
        starts.failed(name, args);
        throw error;
      } finally {
        duration.observe((clock.monotonic() - from) / 1000);
      }
    };
  };
  return new Proxy(runtime, {
    get(target, name) {
      const known = methods.get(name);
      if (known !== undefined) return known;
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== 'function') return value;
      const wrapped = wrap(name as keyof Runtime, value as (...args: unknown[]) => unknown);
      methods.set(name, wrapped);
      return wrapped;
    },
  });
}

interface StartMetrics {
  done(name: keyof Runtime, args: readonly unknown[], seconds: number, answer: unknown): void;
  failed(name: keyof Runtime, args: readonly unknown[]): void;
}

function startMetrics(metrics: MetricsRegistry): StartMetrics {
  const sandboxes = metrics.histogram({
    name: 'kubelet_run_podsandbox_duration_seconds',
    help: 'Duration in seconds of the run_podsandbox operations. Broken down by RuntimeClass.Handler.',
    labels: ['runtime_handler'],
  });
  const sandboxErrors = metrics.counter({
    name: 'kubelet_run_podsandbox_errors_total',
    help: 'Cumulative number of the run_podsandbox operation errors by RuntimeClass.Handler.',
    labels: ['runtime_handler'],
  });
  const pods = metrics
    .counter({ name: 'kubelet_started_pods_total', help: 'Cumulative number of pods started' })
    .with();
  const containers = metrics.counter({
    name: 'kubelet_started_containers_total',
    help: 'Cumulative number of containers started',
    labels: ['container_type'],
  });
  const counter = (name: string, help: string) => metrics.counter({ name, help }).with();
  const podErrors = counter('kubelet_started_pods_errors_total', 'Cumulative number of errors when starting pods');
  const ofUsers = counter(
    'kubelet_started_user_namespaced_pods_total',
    'Cumulative number of pods with user namespaces started. This will only be non-zero if UserNamespacesSupport feature gate is enabled.',
  );
  const ofUsersErrors = counter(
    'kubelet_started_user_namespaced_pods_errors_total',
    'Cumulative number of errors when starting pods with user namespaces. This will only be non-zero if UserNamespacesSupport feature gate is enabled.',
  );
  const hasUsers = (args: readonly unknown[]): boolean =>
    (args as [SandboxConfig])[0].namespaces.userNamespace !== undefined;
  /** The types of containers that are created but not started. */
  const types = new Map<ContainerId, string>();
  const failed: StartMetrics['failed'] = (name, args) => {
    if (name !== 'runSandbox') return;
    podErrors.inc();
    sandboxErrors.with((args as [SandboxConfig])[0].runtimeHandler).inc();
    if (hasUsers(args)) ofUsersErrors.inc();
  };
  const done: StartMetrics['done'] = (name, args, seconds, answer) => {
    if (name === 'runSandbox') {
      const [config] = args as [SandboxConfig];
      sandboxes.with(config.runtimeHandler).observe(seconds);
      pods.inc();
      if (hasUsers(args)) ofUsers.inc();
    } else if (name === 'createContainer') {
      const config = args[2] as ContainerConfig;
      types.set(answer as ContainerId, CONTAINER_TYPES[config.kind]);
    } else if (name === 'startContainer') {
      const [id] = args as [ContainerId];
      containers.with(types.get(id) ?? 'container').inc();
      types.delete(id);
    } else if (name === 'removeContainer') {
      types.delete(args[0] as ContainerId);
    }
  };
  return { done, failed };
}

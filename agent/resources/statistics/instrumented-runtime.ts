/**
 * Wraps the runtime to measure its requests (`kubelet_runtime_operations_*`), and counts starts of pods and containers and
 * mounts of image volumes.
 */
import type { Clock } from '../../../api/machinery/clock.ts';
import type { MetricsRegistry } from '../../../api/component/metrics.ts';
import type { Pod } from '../../base/model/pod.ts';
import type { StartObserver } from '../../runtime/kuberuntime/container-starter.ts';
import type { ContainerConfig, Runtime, SandboxConfig } from '../../runtime/runtime.ts';

/** The metric's operation name by method; `undefined` for methods that are not measured, such as streams. */
const OPERATIONS: Readonly<Record<keyof Runtime, string | undefined>> = {
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
  features: undefined,
  cgroupDriver: undefined,
  cniPlaces: undefined,
  exec: undefined,
  attach: undefined,
  portForward: undefined,
  loadImages: undefined,
  events: undefined,
  close: undefined,
};

/**
 * The bounds of the buckets in seconds. Each is the one before it times 2.5, as Go computes them, because the last digits of
 * the numbers are in the names of the buckets.
 */
const OPERATION_BUCKETS = Array.from({ length: 13 }).reduce<number[]>(
  (all) => [...all, (all.at(-1) ?? 0) * 2.5],
  [0.005],
);

const CONTAINER_TYPES: Readonly<Record<ContainerConfig['kind'], string>> = {
  regular: 'container',
  init: 'init_container',
  ephemeral: 'ephemeral_container',
};

/** Counts attempts to start pods and containers, and those that failed, also before the runtime was called. */
export function startMetrics(metrics: MetricsRegistry): StartObserver {
  const counter = (name: string, help: string) => metrics.counter({ name, help }).with();
  const pods = counter('kubelet_started_pods_total', 'Cumulative number of pods started');
  const podErrors = counter('kubelet_started_pods_errors_total', 'Cumulative number of errors when starting pods');
  const userNamespaced = counter(
    'kubelet_started_user_namespaced_pods_total',
    'Cumulative number of pods with user namespaces started. This will only be non-zero if UserNamespacesSupport feature gate is enabled.',
  );
  const userNamespacedErrors = counter(
    'kubelet_started_user_namespaced_pods_errors_total',
    'Cumulative number of errors when starting pods with user namespaces. This will only be non-zero if UserNamespacesSupport feature gate is enabled.',
  );
  const containers = metrics.counter({
    name: 'kubelet_started_containers_total',
    help: 'Cumulative number of containers started',
    labels: ['container_type'],
  });
  const containerErrors = metrics.counter({
    name: 'kubelet_started_containers_errors_total',
    help: 'Cumulative number of errors when starting containers',
    labels: ['container_type', 'code'],
  });
  const hasUserNamespace = (pod: Pod): boolean => pod.spec.hostUsers === false;
  return {
    pod(pod) {
      pods.inc();
      if (hasUserNamespace(pod)) userNamespaced.inc();
    },
    sandboxFailed: () => podErrors.inc(),
    podFailed(pod) {
      if (hasUserNamespace(pod)) userNamespacedErrors.inc();
    },
    container: (kind) => containers.with(CONTAINER_TYPES[kind]).inc(),
    containerFailed: (kind, reason) => containerErrors.with(CONTAINER_TYPES[kind], reason).inc(),
  };
}

const handlerOf = (args: readonly unknown[]): string => (args as [SandboxConfig])[0].runtimeHandler;

/** Counts the image volumes of containers that were created, or could not be. */
export function imageVolumeMetrics(metrics: MetricsRegistry): (count: number, outcome: 'mounted' | 'failed') => void {
  const counter = (what: string, help: string) =>
    metrics.counter({ name: `kubelet_image_volume_${what}_total`, help }).with();
  const requested = counter('requested', 'Number of requested image volumes.');
  const mounted = counter('mounted_succeed', 'Number of successful image volume mounts.');
  const failed = counter('mounted_errors', 'Number of failed image volume mounts.');
  return (count, outcome) => {
    requested.inc(count);
    (outcome === 'mounted' ? mounted : failed).inc(count);
  };
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
  const methods = new Map<PropertyKey, unknown>();
  const wrap = (name: keyof Runtime, method: (...args: unknown[]) => unknown): unknown => {
    const operation = OPERATIONS[name];
    if (operation === undefined) return method.bind(runtime);
    const [count, duration] = [total.with(operation), durations.with(operation)];
    return async (...args: unknown[]): Promise<unknown> => {
      count.inc();
      const fromMs = clock.monotonic();
      try {
        return await method.apply(runtime, args);
      } catch (error) {
        errors.with(operation).inc();
        if (name === 'runSandbox') sandboxErrors.with(handlerOf(args)).inc();
        throw error;
      } finally {
        const seconds = (clock.monotonic() - fromMs) / 1000;
        duration.observe(seconds);
        if (name === 'runSandbox') sandboxes.with(handlerOf(args)).observe(seconds);
      }
    };
  };
  return new Proxy(runtime, {
    get(target, name) {
      const cached = methods.get(name);
      if (cached !== undefined) return cached;
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== 'function') return value;
      const wrapped = wrap(name as keyof Runtime, value as (...args: unknown[]) => unknown);
      methods.set(name, wrapped);
      return wrapped;
    },
  });
}

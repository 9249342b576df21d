/** Defines the table columns of pods: the number of ready containers and the status in one word, among others. */
import type { Pod, PodStatus } from '../../../../api/kinds/pod-types.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import type { Cell, TableColumns, TableRowCondition } from '../../strategy.ts';
import { age, ageColumn, column, field, nameColumn, nameOf, orNone } from '../../columns/column.ts';

type ContainerStatus = NonNullable<PodStatus['containerStatuses']>[number];

const UNREACHABLE = 'NodeLost';

interface Summary {
  reason: string;
  restarts: number;
  lastRestartMs: number;
  ready: number;
  total: number;
}

function summarize(pod: Pod): Summary {
  const spec = pod.spec ?? {};
  const status = pod.status ?? {};
  const sidecars = new Set(
    (spec.initContainers ?? []).filter(({ restartPolicy }) => restartPolicy === 'Always').map(({ name }) => name),
  );
  const summary: Summary = {
    reason: (status.reason ?? '') !== '' ? (status.reason ?? '') : (status.phase ?? ''),
    restarts: 0,
    lastRestartMs: 0,
    ready: 0,
    total: (spec.containers ?? []).length + sidecars.size,
  };
  if ((status.conditions ?? []).some(({ type, reason }) => type === 'PodScheduled' && reason === 'SchedulingGated'))
    summary.reason = 'SchedulingGated';
  const initializing = countInit(pod, summary, sidecars);
  if (!initializing || isInitialized(status)) countContainers(status, summary);
  if (pod.metadata.deletionTimestamp !== undefined) {
    if (status.reason === UNREACHABLE) summary.reason = 'Unknown';
    else if (!['Succeeded', 'Failed'].includes(status.phase ?? '')) summary.reason = 'Terminating';
  }
  return summary;
}

function addRestarts(one: ContainerStatus, summary: Summary): void {
  summary.restarts += one.restartCount ?? 0;
  const finished = one.lastState?.terminated?.finishedAt;
  if (typeof finished === 'string') summary.lastRestartMs = Math.max(summary.lastRestartMs, Date.parse(finished));
}

/** Counts the init containers. Returns whether the pod waits for one of them. */
function countInit(pod: Pod, summary: Summary, sidecars: ReadonlySet<string | undefined>): boolean {
  const total = (pod.spec?.initContainers ?? []).length;
  const all = { ...summary };
  for (const [index, one] of (pod.status?.initContainerStatuses ?? []).entries()) {
    addRestarts(one, all);
    if (sidecars.has(one.name)) addRestarts(one, summary);
    const { terminated, waiting } = one.state ?? {};
    if (terminated?.exitCode === 0) continue;
    if (sidecars.has(one.name) && one.started === true) {
      if (one.ready === true) summary.ready++;
      continue;
    }
    if (terminated !== undefined) {
      if ((terminated.reason ?? '') !== '') summary.reason = `Init:${terminated.reason}`;
      else
        summary.reason =
          (terminated.signal ?? 0) !== 0
            ? `Init:Signal:${terminated.signal}`
            : `Init:ExitCode:${terminated.exitCode ?? 0}`;
    } else if (waiting !== undefined && (waiting.reason ?? '') !== '' && waiting.reason !== 'PodInitializing') {
      summary.reason = `Init:${waiting.reason}`;
    } else summary.reason = `Init:${index}/${total}`;
    if (!isInitialized(pod.status)) {
      summary.restarts = all.restarts;
      summary.lastRestartMs = all.lastRestartMs;
    }
    return true;
  }
  return false;
}

const isInitialized = (status: PodStatus | undefined): boolean =>
  (status?.conditions ?? []).some(({ type, status: value }) => type === 'Initialized' && value === 'True');

function countContainers(status: PodStatus, summary: Summary): void {
  let running = false;
  for (const one of [...(status.containerStatuses ?? [])].reverse()) {
    addRestarts(one, summary);
    const { waiting, terminated } = one.state ?? {};
    if (waiting !== undefined && (waiting.reason ?? '') !== '') summary.reason = waiting.reason ?? '';
    else if (terminated !== undefined && (terminated.reason ?? '') !== '') summary.reason = terminated.reason ?? '';
    else if (terminated !== undefined) {
      summary.reason =
        (terminated.signal ?? 0) !== 0 ? `Signal:${terminated.signal}` : `ExitCode:${terminated.exitCode ?? 0}`;
    } else if (one.ready === true && one.state?.running !== undefined) {
      running = true;
      summary.ready++;
    }
  }
  if (summary.reason === 'Completed' && running) {
    const ready = (status.conditions ?? []).some(({ type, status: value }) => type === 'Ready' && value === 'True');
    summary.reason = ready ? 'Running' : 'NotReady';
  }
}

function gatesOf(pod: Pod): string {
  const gates = pod.spec?.readinessGates ?? [];
  if (gates.length === 0) return '<none>';
  const met = gates.filter(({ conditionType }) =>
    (pod.status?.conditions ?? []).some(({ type, status }) => type === conditionType && status === 'True'),
  );
  return `${met.length}/${gates.length}`;
}

const completed = (reason: string, message: string): TableRowCondition => ({
  type: 'Completed',
  status: 'True',
  reason,
  message,
});

export const podColumns: TableColumns = {
  columns: [
    nameColumn,
    column('Ready', 'The aggregate readiness state of this pod for accepting traffic.'),
    column('Status', 'The aggregate status of the containers in this pod.'),
    column(
      'Restarts',
      'The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.',
    ),
    ageColumn,
    column('IP', field('core.v1.PodStatus', 'podIP'), { wide: true }),
    column('Node', field('core.v1.PodSpec', 'nodeName'), { wide: true }),
    column('Nominated Node', field('core.v1.PodStatus', 'nominatedNodeName'), { wide: true }),
    column('Readiness Gates', field('core.v1.PodSpec', 'readinessGates'), { wide: true }),
  ],
  conditions({ status }: Pod) {
    const { phase } = status ?? {};
    if (phase === 'Succeeded') return [completed(phase, 'The pod has completed successfully.')];
    return phase === 'Failed' ? [completed(phase, 'The pod failed.')] : [];
  },
  cells(object: KubeObject): Cell[] {
    const pod: Pod = object;
    const summary = summarize(pod);
    const restarts: Cell =
      summary.restarts > 0 && summary.lastRestartMs > 0
        ? { sinceMs: summary.lastRestartMs, before: `${summary.restarts} (`, after: ' ago)' }
        : String(summary.restarts);
    const address = pod.status?.podIPs?.[0]?.ip ?? pod.status?.podIP;
    return [
      nameOf(object),
      `${summary.ready}/${summary.total}`,
      summary.reason,
      restarts,
      age(object),
      orNone(address),
      orNone(pod.spec?.nodeName),
      orNone(pod.status?.nominatedNodeName),
      gatesOf(pod),
    ];
  },
};

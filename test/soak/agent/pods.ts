/**
 * Builds the pods of the soak test of an agent. Each container appends a line to a file of the host when it starts, exits or is
 * stopped.
 */
import type { Role } from './records.ts';
import { DEMO_IMAGE } from '../../../scripts/images/demo-image.ts';

/** The folder of the records in every container. */
export const RECORDS = '/records';
/** `full`: an init container and two that run on; `job`: a pod that ends; `static`: a pod of a file. */
export type PodKind = 'full' | 'job' | 'static';

/** The containers of each kind of pod, with their possible outcomes. */
export const CONTAINERS: Readonly<Record<PodKind, Readonly<Record<string, Role>>>> = {
  full: { prepare: 'init', main: 'forever', side: 'forever' },
  job: { prepare: 'init', work: 'once' },
  static: { main: 'forever' },
};

const MARK = `f=${RECORDS}/$POD_UID.$NAME; read -r id _ </proc/uptime; mark() { read -r up _ </proc/uptime; echo "$1 $up $id" >>$f; }; mark S`;
/** Exits when a file `.die` appears. */
const FOREVER = `${MARK}; trap 'mark T; exit 0' TERM; while :; do if [ -e $f.die ]; then rm $f.die; mark X; exit 1; fi; sleep 0.5; mark A; done`;
const ONCE = `${MARK}; sleep 0.5; mark X`;

function container(name: string, role: Role, mounts: readonly object[], more: object = {}): object {
  return {
    name,
    image: DEMO_IMAGE,
    command: ['sh', '-c', role === 'forever' ? FOREVER : ONCE],
    env: [
      { name: 'POD_UID', valueFrom: { fieldRef: { fieldPath: 'metadata.uid' } } },
      { name: 'NAME', value: name },
    ],
    volumeMounts: [{ name: 'records', mountPath: RECORDS }, ...mounts],
    ...more,
  };
}

export interface PodOptions {
  readonly name: string;
  readonly kind: PodKind;
  readonly records: string;
  readonly nodeName: string;
  readonly version: string;
}

/**
 * The CPU of a container, before and after a resize. Pods that are still terminating count when a node admits others, so a slow
 * host needs room for several times the pods that the program wants.
 */
export const CPU = ['40m', '60m'] as const;

/** Returns requests and limits of this CPU, so that the pod is Guaranteed and can be resized. */
export function resources(cpu: string): object {
  const amounts = { cpu, memory: '32Mi' };
  return { requests: amounts, limits: amounts };
}

/** Returns the manifest of a pod. Its containers write their records to the folder `records` of the host. */
export function podOf({ name, kind, records, nodeName, version }: PodOptions): object {
  const memory = { name: 'memory', emptyDir: { medium: 'Memory', sizeLimit: '1Mi' } };
  const settings = { name: 'settings', configMap: { name: 'settings' } };
  const mounts = [
    { name: 'memory', mountPath: '/memory' },
    ...(kind === 'static' ? [] : [{ name: 'settings', mountPath: '/settings' }]),
  ];
  const entries = Object.entries(CONTAINERS[kind]);
  const of = (isInit: boolean): object[] =>
    entries
      .filter(([, role]) => (role === 'init') === isInit)
      .map(([one, role]) => container(one, role, mounts, kind === 'job' ? {} : { resources: resources(CPU[0]) }));
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, namespace: 'default', labels: { version } },
    spec: {
      ...(kind === 'static' ? {} : { nodeName }),
      restartPolicy: kind === 'job' ? 'Never' : 'Always',
      terminationGracePeriodSeconds: 5,
      initContainers: of(true),
      containers: of(false),
      volumes: [{ name: 'records', hostPath: { path: records } }, memory, ...(kind === 'static' ? [] : [settings])],
    },
  };
}

/** Finds differences between the actual state and the state that the pods and the rules of a node require. */
import { globSync } from 'node:fs';
import type { Runtime, SandboxStatus } from '../../../agent/runtime/runtime.ts';
import type { Api } from '../api.ts';
import { addressesLeft, leftovers } from './leftovers.ts';
import type { RuntimeName, SoakNode } from './node.ts';
import type { PodObject } from './pod-watch.ts';
import { PODS, type PodProgram, type WantedPod } from './program.ts';

const TAKEN_BACK = /context canceled|context cancelled/;
const STATIC_POD_HASH = 'kubernetes.io/config.hash';

export interface Settling {
  readonly node: SoakNode;
  readonly api: Api;
  readonly runtime: Runtime;
  readonly program: PodProgram;
}

/** Returns the differences, each as a sentence; none if the node is settled. */
export async function unsettled(
  { node, api, runtime, program }: Settling,
  { on, socket }: { readonly on: RuntimeName; readonly socket: string },
): Promise<string[]> {
  const { status, body } = await api.call('GET', PODS);
  if (status !== 200) return [`a list of pods gives ${status}`];
  const shown = new Map(((body.items ?? []) as PodObject[]).map((pod) => [pod.metadata.name, pod]));
  const found: string[] = [];
  const [exist, run] = [new Set<string>(), new Set<string>()];
  const names = new Set<string>();
  const sandboxes = await runtime.listSandboxes();
  for (const pod of program.pods.values()) {
    const name = program.mirrorName(pod);
    names.add(name);
    const object = shown.get(name);
    const problem = object === undefined ? 'is not there' : problemOf(pod, object);
    if (problem !== undefined) found.push(`pod ${name} ${problem}`);
    if (object === undefined) continue;
    const uid = pod.uid ?? sandboxes.find((sandbox) => isOf(sandbox, object))?.pod.uid ?? `of ${name} is unknown`;
    exist.add(uid);
    if (pod.kind !== 'job') run.add(uid);
  }
  for (const name of shown.keys()) if (!names.has(name)) found.push(`pod ${name} was deleted and is there`);
  for (const file of globSync('*.die', { cwd: node.records })) {
    if (exist.has(file.split('.')[0] ?? '')) found.push(`${file} is still to be seen`);
  }
  if (found.length > 0) return found;
  found.push(...(await leftovers(node, runtime, { exist, run })));
  return found.length > 0 ? found : addressesLeft(on, socket, node, run.size);
}

/**
 * Whether the sandbox is that of the pod. A static pod and its mirror pod have different uids, but the same hash of the
 * manifest.
 */
function isOf({ pod, annotations }: SandboxStatus, { metadata }: PodObject): boolean {
  return pod.name === metadata.name && annotations[STATIC_POD_HASH] === metadata.annotations?.[STATIC_POD_HASH];
}

/**
 * Whether containerd cancelled the start of a container because its client disappeared. A container that may not restart has
 * then failed.
 */
function startWasTakenBack(status: PodObject['status']): boolean {
  const containers = [...(status?.initContainerStatuses ?? []), ...(status?.containerStatuses ?? [])];
  return containers.some(({ state }) => TAKEN_BACK.test(state?.terminated?.message ?? ''));
}

function problemOf({ kind, uid, cpu, version }: WantedPod, { metadata, status }: PodObject): string | undefined {
  const phase = status?.phase ?? '';
  if (metadata.deletionTimestamp !== undefined) return 'is being deleted';
  if (uid !== undefined && metadata.uid !== uid) return `has uid ${metadata.uid} instead of ${uid}`;
  if (metadata.labels?.['version'] !== version) return `has version ${metadata.labels?.['version']}`;
  if (kind === 'job' && phase === 'Failed' && startWasTakenBack(status)) return undefined;
  if (kind === 'job')
    return phase === 'Succeeded' ? undefined : `is ${phase} instead of Succeeded: ${JSON.stringify(status)}`;
  const ready = status?.conditions?.find(({ type }) => type === 'Ready')?.status;
  if (phase !== 'Running' || ready !== 'True') return `is ${phase}, Ready ${ready}: ${JSON.stringify(status)}`;
  if (kind !== 'full') return undefined;
  const other = status?.containerStatuses?.find(({ resources }) => resources?.limits?.cpu !== cpu);
  return other && `has ${other.resources?.limits?.cpu} of CPU in ${other.name} instead of ${cpu}`;
}

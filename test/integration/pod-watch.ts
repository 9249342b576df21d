/**
 * Records every state of every pod and every event with watches, so that tests need no polling, and checks that a status never
 * regresses or flaps.
 */
import assert from 'node:assert/strict';
import type { ChildProcess } from 'node:child_process';
import type { PodCluster } from './pod-cluster.ts';

interface State {
  readonly waiting?: { readonly reason?: string; readonly message?: string };
  readonly running?: object;
  readonly terminated?: { readonly exitCode: number; readonly containerID?: string };
}

interface Container {
  readonly name: string;
  readonly restartCount: number;
  readonly containerID?: string;
  readonly ready?: boolean;
  readonly started?: boolean;
  readonly state: State;
}

interface Seen {
  readonly type: string;
  readonly object: {
    readonly metadata: { readonly name: string; readonly uid: string };
    readonly spec: { readonly nodeName?: string };
    readonly status: {
      readonly phase: string;
      readonly observedGeneration?: number;
      readonly initContainerStatuses?: readonly Container[];
      readonly containerStatuses?: readonly Container[];
      readonly ephemeralContainerStatuses?: readonly Container[];
    };
  };
}

const PHASES = ['Pending', 'Running', 'Succeeded', 'Failed'];

interface Event {
  readonly object: {
    readonly involvedObject: { readonly name: string };
    readonly reason: string;
    readonly message: string;
  };
}

/** The recorded states of pods, and the checks on them. */
export class PodWatch {
  readonly #pods: Seen[] = [];
  readonly #events: Event[] = [];
  readonly #children: ChildProcess[];

  constructor(cluster: PodCluster) {
    this.#children = [
      follow(cluster, 'pods', (line) => this.#pods.push(line as Seen)),
      follow(cluster, 'events', (line) => this.#events.push(line as Event)),
    ];
  }

  close(): void {
    for (const child of this.#children) child.kill();
  }

  /** Returns the last state of the pod. */
  pod(name: string): Seen['object'] | undefined {
    return this.#pods.findLast(({ object }) => object.metadata.name === name)?.object;
  }

  phase(name: string): string | undefined {
    return this.pod(name)?.status.phase;
  }

  /** Returns the status of a container of any kind, by default `main`. */
  container(pod: string, name = 'main'): Container | undefined {
    const object = this.pod(pod);
    return object === undefined ? undefined : containersOf(object).find((container) => container.name === name);
  }

  /** Whether the newest pod of this name was deleted. */
  isGone(name: string): boolean {
    return this.#pods.findLast(({ object }) => object.metadata.name === name)?.type === 'DELETED';
  }

  /** Whether an event with the reason and such a message about the pod was seen. */
  hasEvent(pod: string, reason: string, message: RegExp): boolean {
    return this.#events.some(
      ({ object }) => object.involvedObject.name === pod && object.reason === reason && message.test(object.message),
    );
  }

  /** Throws an error with the two states if one reverted another. */
  assertSteady(): void {
    const last = new Map<string, Seen['object']>();
    for (const { object } of this.#pods) {
      const before = last.get(object.metadata.uid);
      last.set(object.metadata.uid, object);
      if (before !== undefined) assertForward(before, object);
    }
    assert.ok(last.size > 0, 'the watch saw no pod');
  }
}

function follow(cluster: PodCluster, resource: string, take: (line: unknown) => void): ChildProcess {
  const child = cluster.spawn(['get', '--raw', `/api/v1/namespaces/default/${resource}?watch=true`]);
  let rest = '';
  child.stdout?.on('data', (chunk: Buffer) => {
    const lines = (rest + chunk.toString()).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) take(JSON.parse(line));
  });
  return child;
}

function assertForward(before: Seen['object'], now: Seen['object']): void {
  const change = `${now.metadata.name}: ${JSON.stringify(before.status)} was followed by ${JSON.stringify(now.status)}`;
  const isOver = before.status.phase === 'Succeeded' || before.status.phase === 'Failed';
  assert.ok(!isOver || now.status.phase === before.status.phase, change);
  assert.ok(PHASES.indexOf(now.status.phase) >= PHASES.indexOf(before.status.phase), change);
  assert.ok((now.status.observedGeneration ?? 0) >= (before.status.observedGeneration ?? 0), change);
  for (const container of containersOf(now)) {
    const old = containersOf(before).find(({ name }) => name === container.name);
    if (old === undefined) continue;
    assert.ok(container.restartCount >= old.restartCount, change);
    if (old.containerID === undefined || container.containerID !== old.containerID) continue;
    // A terminated container does not run again with the same id, and a running one does not wait for its start.
    assert.ok(!(old.state.terminated !== undefined && container.state.running !== undefined), change);
    assert.ok(!(old.started === true && container.started !== true && container.state.running !== undefined), change);
  }
}

function containersOf({ status }: Seen['object']): readonly Container[] {
  return [
    ...(status.initContainerStatuses ?? []),
    ...(status.containerStatuses ?? []),
    ...(status.ephemeralContainerStatuses ?? []),
  ];
}

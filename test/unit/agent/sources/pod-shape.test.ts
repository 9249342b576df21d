import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Pod } from '../../../../agent/base/model/pod.ts';
import { isCriticalPod, isStaticPod } from '../../../../agent/base/model/pod-kinds.ts';
import { createPodConfig } from '../../../../agent/sources/pod-config.ts';
import type { OnPods, PodSource } from '../../../../agent/sources/pod-source.ts';
import { whenAborted } from '../../../../api/machinery/clock.ts';
import { silentLogger } from '../../../../api/component/logger.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

const pod = (uid: string, { metadata, spec, ...rest }: Record<string, object> = {}): object => ({
  metadata: { name: uid, namespace: 'n', uid, ...metadata },
  spec: { containers: [{ name: 'c', image: 'i' }], ...spec },
  ...rest,
});

/** Runs the mux over one source. Returns what the sync loop gets, and the errors in the log. */
function mux(name: PodSource['name'] = 'api') {
  const seen: string[] = [];
  const pods = new Map<string, Pod>();
  const faults: string[] = [];
  const accepted: string[] = [];
  const report = Promise.withResolvers<OnPods>();
  const source: PodSource = {
    name,
    accepted: (all) => void accepted.splice(0, Infinity, ...all.map(({ metadata }) => metadata.uid)),
    run: (signal, onPods) => {
      report.resolve(onPods);
      return whenAborted(signal);
    },
  };
  const logger = {
    ...silentLogger,
    error: (fields: { readonly fault?: string }) => void faults.push(fields.fault ?? ''),
  } as never;
  const stop = new AbortController();
  void createPodConfig({ sources: [source], clock: new FakeClock(), logger }).run(stop.signal, (update) => {
    for (const one of update.pods) {
      seen.push(`${update.type} ${one.metadata.uid}`);
      pods.set(one.metadata.uid, one);
    }
  });
  const send = async (...values: readonly object[]): Promise<void> => {
    const onPods = await report.promise;
    onPods(values as unknown as Pod[]);
  };
  return { send, seen, pods, faults, accepted, stop };
}

/** Returns a value of as many levels as `levels`. */
function nested(levels: number): unknown {
  let value: unknown = {};
  for (let level = 0; level < levels; level++) value = { a: value };
  return value;
}

describe('a pod of any source', () => {
  const wrong: readonly [string, object][] = [
    ['whose metadata is null', { metadata: null, spec: {} }],
    ['whose metadata is a list', { metadata: [], spec: {} }],
    ['without a specification', { metadata: pod('x') }],
    ['whose specification is a text', { ...pod('x'), spec: 'y' }],
    ['whose containers are a text', pod('x', { spec: { containers: 'y' } })],
    ['with a container that is null', pod('x', { spec: { containers: [null] } })],
    ['whose labels are numbers', pod('x', { metadata: { labels: { a: 1 } } })],
    ['whose owners are a map', pod('x', { metadata: { ownerReferences: {} } })],
    ['whose status is a list', pod('x', { status: [] })],
    ['whose container statuses are a map', pod('x', { status: { containerStatuses: {} } })],
    ['whose tolerations are a text', pod('x', { spec: { tolerations: 'y' } })],
    ['whose grace period is a text', pod('x', { spec: { terminationGracePeriodSeconds: '30' } })],
    ['whose deletion time is no time', pod('x', { metadata: { deletionTimestamp: 'soon' } })],
    [
      'with a quantity that does not parse',
      pod('x', { spec: { containers: [{ name: 'c', resources: { requests: { cpu: 'much' } } }] } }),
    ],
    [
      'whose port is a list',
      pod('x', { spec: { containers: [{ name: 'c', ports: [{ containerPort: [80], hostPort: [80] }] }] } }),
    ],
    [
      'with a hundred thousand levels',
      pod('x', { metadata: { managedFields: [{ fieldsV1: nested(100_000) }] as never } }),
    ],
    ['with a hundred thousand levels below an unknown name', pod('x', { nested: nested(100_000) as object })],
  ];
  for (const [what, value] of wrong)
    it(`${what} is left out and logged once, and the others run`, async () => {
      const { send, seen, faults, accepted, stop } = mux();
      await send(value, pod('good'));
      await send(value, pod('good'), pod('another'));
      stop.abort();
      assert.deepEqual(seen, ['add good', 'add another']);
      assert.deepEqual(accepted, ['good', 'another']);
      assert.equal(faults.length, 1);
      assert.ok((faults[0] ?? '').length > 0 && (faults[0] ?? '').length < 2000, String(faults));
    });

  it('runs on as it was when it becomes unreadable, until it is gone', async () => {
    const { send, seen, stop } = mux();
    await send(pod('a'));
    await send(pod('a', { spec: { containers: 7 as never } }));
    assert.deepEqual(seen, ['add a']);
    await send();
    stop.abort();
    assert.deepEqual(seen, ['add a', 'remove a']);
  });

  it('has no nulls where the API has lists, and whole numbers with which one can calculate', async () => {
    const { send, pods, stop } = mux();
    await send(
      pod('a', {
        spec: {
          containers: null as never,
          initContainers: null as never,
          terminationGracePeriodSeconds: 2n ** 63n - 1n,
        },
      } as never),
      JSON.parse(
        JSON.stringify(pod('b')).replace('"spec":{', '"spec":{"activeDeadlineSeconds":9223372036854775807,'),
      ) as object,
    );
    stop.abort();
    assert.deepEqual(pods.get('a')?.spec, {
      containers: [],
      terminationGracePeriodSeconds: Number.MAX_SAFE_INTEGER,
    });
    assert.equal(pods.get('b')?.spec.activeDeadlineSeconds, Number.MAX_SAFE_INTEGER);
  });

  it('has a short error, however long its name is', async () => {
    const { send, faults, stop } = mux();
    await send(pod('x', { spec: { containers: [{ name: 'y'.repeat(1 << 20) }] } }));
    stop.abort();
    assert.ok((faults[0] ?? '').length < 2000);
  });
});

it('pods of the API server are not static, and not critical to the node, whatever their annotations state', async () => {
  const { send, pods, stop } = mux();
  const sources = ['file', 'http', 'submitted', ''];
  await send(
    ...sources.map((source) =>
      pod(`from-${source}0`, { metadata: { annotations: { 'kubernetes.io/config.source': source } } }),
    ),
  );
  stop.abort();
  assert.equal(pods.size, sources.length);
  assert.deepEqual(
    [...pods.values()].filter((one) => isStaticPod(one) || isCriticalPod(one)),
    [],
  );
});

/**
 * Creates all recorded pods at once in a cluster of one node. Each must reach the status that the kubelet reported. Every
 * status of a pod is compared, so that short-lived states are found on fast and slow hosts.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { systemClock } from '../../api/machinery/clock.ts';
import { HttpClient } from '../../api/client/http-client.ts';
import { loadKubeconfig, serverAccess } from '../../api/client/kubeconfig.ts';
import { events, namespaces, pods, serviceAccounts } from '../../api/client/resources.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { podColumns } from '../../controlplane/registry/kinds/core/pod-columns.ts';
import {
  differences,
  expectedStatus,
  type Facts,
  normalizedEvent,
  normalizedStatus,
  podOf,
  type RecordedEvent,
  type RecordedPod,
  recordedPods,
} from '../parity/kubelet/pod-parity.ts';
import { RunningCluster } from './running-cluster.ts';
import { until } from '../until.ts';
import { DEMO_IMAGE } from '../../scripts/images/demo-image.ts';

const NAMESPACE = 'rec';
const NODE = 'node1';
/** The time limit since the creation of the pods. */
const WITHIN_MS = Number(process.env['PARITY_WITHIN_MS'] ?? 180_000);

/** Events that may come before or after the recorded moment. */
const ANY_TIME: ReadonlySet<string> = new Set(['BackOff', 'Unhealthy', 'Killing', 'FailedScheduling']);

interface Watched {
  readonly recorded: RecordedPod;
  matched: KubeObject | undefined;
  fewest: readonly string[];
  isReasonLost: boolean;
}

/**
 * containerd 1.6, which Docker 20.10 uses, sometimes loses the kernel's notification of an out-of-memory kill and reports only
 * the exit code.
 */
const LOST_OOM = /\.terminated\.reason: expected "OOMKilled", is "Error"$/;

/** Declares the tests for a runtime. `skip` is the reason why they cannot run. */
export function podParity(on: 'docker' | 'containerd', skip: string | false): void {
  describe(`pods on ${on} have the status and the events that the kubelet shows`, { skip, timeout: 290_000 }, () => {
    let cluster: RunningCluster;
    let client: HttpClient;
    const watched = new Map<string, Watched>();
    const stop = new AbortController();
    let watching: Promise<void> = Promise.resolve();
    let deadlineMs = 0;
    let facts: Facts = { image: DEMO_IMAGE, hostIps: [] };

    before(async () => {
      cluster = await RunningCluster.start(['--cluster-cidr', '10.213.0.0/16', '--hostname-override', NODE], on);
      client = new HttpClient({
        ...(await serverAccess(await loadKubeconfig(cluster.kubeconfig), { clock: systemClock })),
        clock: systemClock,
      });
      await client.create(namespaces, '', {
        apiVersion: 'v1',
        kind: 'Namespace',
        metadata: { name: NAMESPACE },
      } as KubeObject);
      await until('the service account', () => client.get(serviceAccounts, NAMESPACE, 'default'));
      for (const recorded of recordedPods())
        watched.set(recorded.name, {
          recorded,
          matched: undefined,
          fewest: ['nothing was seen of it'],
          isReasonLost: false,
        });
      deadlineMs = systemClock.monotonic() + WITHIN_MS;
      watching = watch();
      for (const { recorded } of watched.values())
        await client.create(pods, NAMESPACE, podOf(recorded, NAMESPACE, DEMO_IMAGE));
    });

    after(async () => {
      stop.abort();
      await watching;
      await client?.deleteCollection(pods, { namespace: NAMESPACE, gracePeriodSeconds: 0 }).catch(() => undefined);
      await client?.close();
      await cluster?.remove();
    });

    const watch = async (): Promise<void> => {
      while (!stop.signal.aborted) {
        try {
          for await (const event of client.watch(pods, {
            namespace: NAMESPACE,
            resourceVersion: '0',
            signal: stop.signal,
          }))
            if (event.type !== 'BOOKMARK') record(event.object);
        } catch (error) {
          if (!stop.signal.aborted) await systemClock.sleep(100);
          else return void error;
        }
      }
    };

    const record = (pod: KubeObject): void => {
      const entry = watched.get(pod.metadata.name ?? '');
      if (entry === undefined || entry.matched !== undefined) return;
      const hostIp = (pod['status'] as { hostIP?: string } | undefined)?.hostIP;
      if (hostIp !== undefined) facts = { ...facts, hostIps: [hostIp] };
      const all = differences(expectedStatus(entry.recorded), normalizedStatus(pod, facts));
      const found = all.filter((difference) => !LOST_OOM.test(difference));
      entry.isReasonLost = found.length < all.length;
      if (found.length === 0) entry.matched = pod;
      // Among equally close states, the last one explains most.
      if (found.length <= entry.fewest.length || entry.fewest[0]?.startsWith('nothing') === true) entry.fewest = found;
    };

    const eventsOf = async (pod: KubeObject): Promise<readonly RecordedEvent[]> => {
      const { items } = await client.list(events, {
        namespace: NAMESPACE,
        fieldSelector: `involvedObject.name=${pod.metadata.name ?? ''}`,
      });
      return items.map((event) => normalizedEvent(event, pod, facts));
    };

    for (const { name } of recordedPods()) {
      test(`${name}: status, columns and events`, async () => {
        const entry = watched.get(name);
        assert.ok(entry !== undefined);
        await until(
          'the recorded status of the pod',
          () => entry.matched,
          Math.max(1_000, deadlineMs - systemClock.monotonic()),
        ).catch(() => {
          throw new Error(`its status stays different:\n${entry.fewest.join('\n')}`);
        });
        const pod = entry.matched;
        assert.ok(pod !== undefined);
        const { columns } = entry.recorded;
        const cells = podColumns.cells(pod);
        if (columns !== undefined)
          assert.deepEqual(entry.isReasonLost ? [cells[1], columns[1]] : [cells[1], cells[2]], columns);
        const key = (event: RecordedEvent): string => JSON.stringify(event, Object.keys(event).toSorted());
        const wanted = new Set(entry.recorded.events.map(key));
        let observed: readonly RecordedEvent[] = [];
        await until(
          'its events',
          async () => {
            observed = await eventsOf(pod);
            const keys = new Set(observed.map(key));
            return [...wanted].every((one) => keys.has(one)) ? true : undefined;
          },
          Math.max(1_000, deadlineMs - systemClock.monotonic()),
        ).catch(() => {
          assert.deepEqual([...new Set(observed.map(key))].toSorted(), [...wanted].toSorted());
        });
        const extra = observed.filter((event) => !wanted.has(key(event)) && !ANY_TIME.has(event.reason));
        assert.deepEqual(extra, []);
      });
    }
  });
}

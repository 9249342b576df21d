import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { HorizontalPodAutoscaler, Pod } from '../../../../api/kinds/kinds.ts';
import { newStatusError } from '../../../../api/meta/status-error.ts';
import { proposalOf } from '../../../../controlplane/controllers/autoscaler/metric-proposals.ts';
import { MetricsClient } from '../../../../controlplane/controllers/autoscaler/metrics-client.ts';
import type { Metric } from '../../../../controlplane/registry/kinds/autoscaling/autoscaling-conversion.ts';

const podItems = (...values: string[]) => ({
  items: values.map((value, at) => ({ describedObject: { name: `p${at}` }, value, timestamp: '2026-01-01T00:00:00Z' })),
});
const pods: Pod[] = [0, 1].map((at) => ({
  metadata: { name: `p${at}`, namespace: 'n' },
  status: { phase: 'Running', conditions: [{ type: 'Ready', status: 'True' }] },
}));

/** Responds by path. Other paths do not exist. */
function propose(metric: Metric, answers: Record<string, unknown>) {
  const asked: string[] = [];
  const client = new MetricsClient({ list: () => Promise.reject(new Error('not asked here')) }, (path) => {
    asked.push(path);
    const found = answers[path];
    return found === undefined
      ? Promise.reject(newStatusError(404, 'NotFound', 'the server could not find the requested resource'))
      : Promise.resolve(found);
  });
  const autoscaler: HorizontalPodAutoscaler = {
    metadata: { name: 'h', namespace: 'n' },
    spec: { maxReplicas: 5, scaleTargetRef: { kind: 'Deployment', name: 'web' } },
  };
  const input = {
    autoscaler,
    pods,
    selector: 'app=a',
    specReplicas: 2,
    statusReplicas: 2,
  };
  const options = {
    tolerances: { up: 0.1, down: 0.1 },
    nowMs: 0,
    cpuInitializationMs: 0,
    initialReadinessDelayMs: 0,
  };
  const ingress = {
    group: 'networking.k8s.io',
    version: 'v1',
    resource: 'ingresses',
    kind: 'Ingress',
    singular: '',
    shortNames: [],
    categories: [],
    namespaced: true,
    verbs: [],
    subresources: [],
  };
  const catalog = { resources: () => [ingress] };
  return { asked, proposal: proposalOf(metric, input, { metrics: client, catalog, options }) };
}

const CUSTOM = '/apis/custom.metrics.k8s.io';

describe('metrics of containers', () => {
  const unserved = newStatusError(404, 'NotFound', 'the server could not find the requested resource');
  const path = '/apis/metrics.k8s.io/v1beta1/namespaces/n/pods?labelSelector=app%3Da';

  test('come from another server if the API serves none', async () => {
    const items = [{ metadata: { name: 'p' }, containers: [{ name: 'c', usage: { cpu: '250m' } }] }];
    const asked: string[] = [];
    const client = new MetricsClient({ list: () => Promise.reject(unserved) }, async (one) => {
      asked.push(one);
      return { items };
    });
    assert.equal((await client.resource('n', 'app=a', 'cpu', '')).get('p')?.milli, 250);
    assert.deepEqual(asked, [path]);
  });

  test('are missing if nobody serves them', async () => {
    const client = new MetricsClient({ list: () => Promise.reject(unserved) }, () => Promise.reject(unserved));
    await assert.rejects(client.resource('n', 'app=a', 'cpu', ''), {
      message: /^unable to fetch metrics from resource metrics API: /,
    });
  });
});

describe('metrics of adapters', () => {
  test('of pods are averaged', async () => {
    const metric: Metric = {
      type: 'Pods',
      pods: { metric: { name: 'qps' }, target: { type: 'AverageValue', averageValue: '10' } },
    };
    const path = `${CUSTOM}/v1beta2/namespaces/n/pods/*/qps?labelSelector=app%3Da`;
    const { proposal } = propose(metric, { [path]: podItems('30', '10') });
    assert.deepEqual(await proposal, {
      replicas: 4,
      name: 'pods metric qps',
      status: { type: 'Pods', pods: { metric: { name: 'qps' }, current: { averageValue: '20' } } },
    });
  });

  test('are requested in the older version where the newer one is not served', async () => {
    const metric: Metric = {
      type: 'Object',
      object: {
        describedObject: { kind: 'Ingress', apiVersion: 'networking.k8s.io/v1', name: 'main' },
        metric: { name: 'rps' },
        target: { type: 'Value', value: '100' },
      },
    };
    const tail = 'namespaces/n/ingresses.networking.k8s.io/main/rps?';
    const { asked, proposal } = propose(metric, { [`${CUSTOM}/v1beta1/${tail}`]: { items: [{ value: '200' }] } });
    assert.equal((await proposal).replicas, 4);
    assert.deepEqual(asked, [`${CUSTOM}/v1beta2/${tail}`, `${CUSTOM}/v1beta1/${tail}`]);
  });

  test('of something outside are summed, and shared by the replicas', async () => {
    const metric: Metric = {
      type: 'External',
      external: { metric: { name: 'queue' }, target: { type: 'AverageValue', averageValue: '30' } },
    };
    const path = '/apis/external.metrics.k8s.io/v1beta1/namespaces/n/queue?labelSelector=';
    const { proposal } = propose(metric, { [path]: { items: [{ value: '60' }, { value: '61' }] } });
    const { replicas, name, status } = await proposal;
    assert.deepEqual([replicas, name], [5, 'external metric queue(nil)']);
    assert.deepEqual(status.external?.current, { averageValue: '60500m' });
  });

  test('that are not available are reported with the reason', async () => {
    const metric: Metric = {
      type: 'External',
      external: { metric: { name: 'queue' }, target: { type: 'Value', value: '30' } },
    };
    await assert.rejects(propose(metric, {}).proposal, {
      reason: 'FailedGetExternalMetric',
      message:
        /^failed to get queue external metric value: unable to get external metric n\/queue\/nil: unable to fetch metrics from external metrics API: /,
    });
  });
});

import assert from 'node:assert/strict';
import fc from 'fast-check';
import { after, before, describe, it } from 'node:test';
import { systemClock } from '../../../../../../api/machinery/clock.ts';
import { cloneJson } from '../../../../../../api/meta/json-equality.ts';
import type { KubeObject } from '../../../../../../api/meta/object.ts';
import { versionOne } from '../../../../../../controlplane/registry/kinds/autoscaling/autoscaling-conversion.ts';
import { createFieldManagement } from '../../../../../../controlplane/registry/managed-fields.ts';
import { openFixture, type Fixture } from '../../registry-fixture.ts';

const plain = (value: object): KubeObject => JSON.parse(JSON.stringify(value)) as KubeObject;

const amount = fc.integer({ min: 1, max: 10_000 }).map(String);
const percent = fc.integer({ min: 1, max: 200 });
const name = fc.stringMatching(/^[a-z][a-z0-9]{0,8}$/);
const identifier = fc.record(
  { name, selector: fc.record({ matchLabels: fc.dictionary(name, name, { minKeys: 1, maxKeys: 2 }) }) },
  { requiredKeys: ['name'] },
);
const value = amount.map((text) => ({ type: 'Value', value: text }));
const average = amount.map((text) => ({ type: 'AverageValue', averageValue: text }));
const utilization = percent.map((use) => ({ type: 'Utilization', averageUtilization: use }));
const resourceName = fc.constantFrom('memory', 'example.com/gpu');
const metric = fc.oneof(
  fc.record({
    type: fc.constant('Resource'),
    resource: fc.record({ name: resourceName, target: fc.oneof(utilization, average) }),
  }),
  fc.record({
    type: fc.constant('ContainerResource'),
    containerResource: fc.record({ name: resourceName, container: name, target: fc.oneof(utilization, average) }),
  }),
  fc.record({ type: fc.constant('Pods'), pods: fc.record({ metric: identifier, target: average }) }),
  fc.record({
    type: fc.constant('Object'),
    object: fc.record({
      describedObject: fc.record({ kind: name, name, apiVersion: name }),
      metric: identifier,
      target: fc.oneof(value, average),
    }),
  }),
  fc.record({
    type: fc.constant('External'),
    external: fc.record({ metric: identifier, target: fc.oneof(value, average) }),
  }),
);
const rules = fc.record(
  {
    stabilizationWindowSeconds: fc.integer({ min: 0, max: 3600 }),
    selectPolicy: fc.constantFrom('Max', 'Min', 'Disabled'),
    tolerance: amount,
    policies: fc.array(
      fc.record({ type: fc.constantFrom('Pods', 'Percent'), value: percent, periodSeconds: percent }),
      { minLength: 1, maxLength: 3 },
    ),
  },
  { requiredKeys: ['policies'] },
);

describe('autoscalers through version 1', () => {
  it('lose nothing', () => {
    fc.assert(
      fc.property(
        fc.array(metric, { maxLength: 4 }),
        percent,
        fc.option(fc.record({ scaleUp: rules, scaleDown: rules }), { nil: undefined }),
        (metrics, cpu, behavior) => {
          const stored = plain({
            apiVersion: 'autoscaling/v2',
            kind: 'HorizontalPodAutoscaler',
            metadata: { name: 'h', annotations: { note: 'x' } },
            spec: {
              scaleTargetRef: { apiVersion: 'apps/v1', kind: 'Deployment', name: 'web' },
              minReplicas: 2,
              maxReplicas: 5,
              metrics: [
                ...metrics,
                {
                  type: 'Resource',
                  resource: { name: 'cpu', target: { type: 'Utilization', averageUtilization: cpu } },
                },
              ],
              ...(behavior === undefined ? {} : { behavior }),
            },
            status: { currentReplicas: 3, desiredReplicas: 4 },
          });
          assert.deepEqual(versionOne.toStored(versionOne.fromStored(cloneJson(stored))), stored);
        },
      ),
    );
  });

  it('have 80 percent of CPU if an annotation does not read', () => {
    const one = versionOne.toStored({
      apiVersion: 'autoscaling/v1',
      kind: 'HorizontalPodAutoscaler',
      metadata: { name: 'h', annotations: { 'autoscaling.alpha.kubernetes.io/metrics': '{nonsense' } },
      spec: { maxReplicas: 1 },
    } as unknown as KubeObject);
    const target = { type: 'Utilization', averageUtilization: 80 };
    assert.deepEqual(one['spec'], {
      maxReplicas: 1,
      metrics: [{ type: 'Resource', resource: { name: 'cpu', target } }],
    });
  });

  it('show the conditions and the usage of version 2 in the older form', () => {
    const one = versionOne.fromStored({
      ...{ apiVersion: 'autoscaling/v2', kind: 'HorizontalPodAutoscaler', metadata: { name: 'h' } },
      status: {
        currentMetrics: [{ type: 'Resource', resource: { name: 'cpu', current: { averageUtilization: 5 } } }],
        conditions: [{ reason: 'r', status: 'True', type: 'AbleToScale' }],
      },
    } as unknown as KubeObject);
    assert.deepEqual(one.metadata.annotations, {
      'autoscaling.alpha.kubernetes.io/current-metrics':
        '[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":5,"currentAverageValue":"0"}}]',
      'autoscaling.alpha.kubernetes.io/conditions':
        '[{"type":"AbleToScale","status":"True","lastTransitionTime":null,"reason":"r"}]',
    });
  });
});

describe('writes of autoscalers through both versions', () => {
  let fixture: Fixture;
  before(async () => {
    fixture = await openFixture(undefined, undefined, (expected, _decoder, others) =>
      createFieldManagement(systemClock, expected, others),
    );
  });
  after(() => fixture.close());

  const path = (version: number): string => `autoscaling/v${version}/horizontalpodautoscalers`;
  const scaler = (version: number, name: string, spec: object, annotations?: object): object => ({
    ...{ apiVersion: `autoscaling/v${version}`, kind: 'HorizontalPodAutoscaler' },
    metadata: { name, ...(annotations === undefined ? {} : { annotations }) },
    spec: { scaleTargetRef: { apiVersion: 'apps/v1', kind: 'Deployment', name: 'web' }, maxReplicas: 3, ...spec },
  });
  const apply = (version: number, name: string, spec: object): Promise<KubeObject> =>
    fixture.patch(path(version), name, {
      ...{ type: 'apply', force: true, duplicates: [] },
      body: scaler(version, name, spec),
    });

  it('keep metrics that an apply of version 1 does not show', async () => {
    const pods = { metric: { name: 'm' }, target: { type: 'AverageValue', averageValue: '5' } };
    await fixture.create(path(2), scaler(2, 'kept', { metrics: [{ type: 'Pods', pods }] }));
    const one = await apply(1, 'kept', {});
    assert.deepEqual(one.metadata.annotations, {
      'autoscaling.alpha.kubernetes.io/metrics': '[{"type":"Pods","pods":{"metricName":"m","targetAverageValue":"5"}}]',
    });
    assert.equal((one['spec'] as Record<string, unknown>)['targetCPUUtilizationPercentage'], undefined);
  });

  it('own what version 1 shows after the write, not what the request had', async () => {
    const name = 'autoscaling.alpha.kubernetes.io/current-metrics';
    const one = await fixture.create(
      path(1),
      scaler(1, 'owned', { targetCPUUtilizationPercentage: 30 }, { [name]: '[]' }),
    );
    assert.equal(JSON.stringify(one.metadata.managedFields).includes(name), false);
  });

  it('refuse rules without policies in version 1, and default them in version 2', async () => {
    const name = 'autoscaling.alpha.kubernetes.io/behavior';
    const behavior = JSON.stringify({ ScaleUp: { StabilizationWindowSeconds: 7 } });
    await assert.rejects(
      fixture.create(path(1), scaler(1, 'ruled', {}, { [name]: behavior })),
      /spec\.behavior\.scaleUp\.policies: Required value: must specify at least one Policy/,
    );
    await apply(1, 'ruled', {});
    await apply(2, 'ruled', { behavior: null });
    await apply(2, 'ruled', { behavior: { scaleUp: { stabilizationWindowSeconds: 7 } } });
    const two = await fixture.get(path(2), 'ruled');
    const { scaleUp } = (two['spec'] as { behavior: { scaleUp: { policies: unknown[] } } }).behavior;
    assert.equal(scaleUp.policies.length, 2);
  });
});

describe('the columns of autoscalers', () => {
  let fixture: Fixture;
  before(async () => {
    fixture = await openFixture();
  });
  after(() => fixture.close());

  it('show two metrics and the number of the others', async () => {
    const cpu = (averageUtilization: number) => ({
      type: 'Resource',
      resource: { name: 'cpu', target: { type: 'Utilization', averageUtilization } },
    });
    const made = await fixture.create('autoscaling/v2/horizontalpodautoscalers', {
      apiVersion: 'autoscaling/v2',
      kind: 'HorizontalPodAutoscaler',
      metadata: { name: 'h' },
      spec: {
        scaleTargetRef: { apiVersion: 'apps/v1', kind: 'Deployment', name: 'web' },
        maxReplicas: 5,
        metrics: [cpu(50), cpu(60), cpu(70)],
      },
    });
    const { info } = fixture.rest('autoscaling', 'v2', 'horizontalpodautoscalers');
    const cells = fixture.registry.columnsOf(info)?.cells(made);
    assert.deepEqual(cells?.slice(0, 6), [
      'h',
      'Deployment/web',
      'cpu: <unknown>/50%, cpu: <unknown>/60% + 1 more...',
      '1',
      5,
      0,
    ]);
  });

  it('read the stored form in every version that is served', async () => {
    const made = await fixture.create('autoscaling/v1/horizontalpodautoscalers', {
      apiVersion: 'autoscaling/v1',
      kind: 'HorizontalPodAutoscaler',
      metadata: { name: 'old' },
      spec: {
        scaleTargetRef: { apiVersion: 'apps/v1', kind: 'Deployment', name: 'web' },
        maxReplicas: 5,
        targetCPUUtilizationPercentage: 70,
      },
    });
    const { info } = fixture.rest('autoscaling', 'v1', 'horizontalpodautoscalers');
    const before = structuredClone(made);
    const cells = fixture.registry.columnsOf(info)?.cells(made);
    assert.deepEqual(cells?.slice(0, 3), ['old', 'Deployment/web', 'cpu: <unknown>/70%']);
    assert.deepEqual(made, before);
    const events = fixture.rest('events.k8s.io', 'v1', 'events').info;
    const event = {
      apiVersion: 'events.k8s.io/v1',
      kind: 'Event',
      metadata: { name: 'e' },
      note: 'told',
      type: 'Normal',
    };
    const columns = fixture.registry.columnsOf(events);
    assert.equal(columns?.columns[0]?.name, 'Last Seen');
    assert.equal(columns?.cells(event)[6], 'told');
  });
});

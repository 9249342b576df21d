import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Deployment, Pod, ReplicaSet } from '../../../../api/kinds/kinds.ts';
import { formatTime } from '../../../../api/machinery/clock.ts';
import { deployments, pods, replicaSets } from '../../../../api/client/resources.ts';
import { runDeployments } from '../../../../controlplane/controllers/deployment/deployment.ts';
import { scaleAll } from '../../../../controlplane/controllers/deployment/rollout.ts';
import { runReplicaSets } from '../../../../controlplane/controllers/replica-set/replica-set.ts';
import { controllerTest, type ControllerTest } from '../../../fakes/fake-controllers.ts';

function deployment(spec: object = {}): Deployment {
  return {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name: 'web', namespace: 'shop' },
    spec: {
      replicas: 3,
      selector: { matchLabels: { app: 'web' } },
      template: { metadata: { labels: { app: 'web' } }, spec: { containers: [{ name: 'web', image: 'web:1' }] } },
      strategy: { type: 'RollingUpdate', rollingUpdate: { maxSurge: 1, maxUnavailable: 0 } },
      progressDeadlineSeconds: 600,
      revisionHistoryLimit: 10,
      ...spec,
    },
  };
}

/** Makes the existing pods ready, like the node agent. */
async function makeReady(t: ControllerTest): Promise<void> {
  for (const pod of t.client.peekAll(pods)) {
    if (pod.status?.phase === 'Running' || pod.metadata.deletionTimestamp !== undefined) continue;
    const ready: Pod = {
      ...pod,
      status: {
        phase: 'Running',
        conditions: [{ type: 'Ready', status: 'True', lastTransitionTime: formatTime(t.clock.now()) }],
      },
    };
    await t.client.update(pods, ready, { subresource: 'status' });
  }
  await t.advance(50);
}

async function change(t: ControllerTest, edit: (deployment: Deployment) => void): Promise<void> {
  const current = structuredClone(t.client.peek(deployments, 'shop', 'web'));
  assert.ok(current);
  edit(current);
  delete current.metadata.resourceVersion;
  await t.client.update(deployments, current);
  await t.advance(50);
}

const images = (t: ControllerTest): string[] =>
  t.client
    .peekAll(pods)
    .map((pod) => pod.spec?.containers[0]?.image ?? '')
    .toSorted();
const condition = (t: ControllerTest, type: string) =>
  t.client.peek(deployments, 'shop', 'web')?.status?.conditions?.find((one) => one.type === type);

test('a new deployment gets a replica set with its pods, and is complete when they are available', async () => {
  const t = controllerTest({ objects: [[deployments, deployment()]] });
  await t.start(runDeployments, runReplicaSets);
  await t.advance(100);
  assert.equal(t.client.peekAll(pods).length, 3);
  assert.equal(condition(t, 'Available')?.reason, 'MinimumReplicasUnavailable');
  await makeReady(t);
  const [set] = t.client.peekAll(replicaSets);
  assert.match(set?.metadata.name ?? '', /^web-[bcdfghjklmnpqrstvwxz2456789]+$/);
  const status = t.client.peek(deployments, 'shop', 'web')?.status;
  assert.equal(status?.availableReplicas, 3);
  assert.equal(condition(t, 'Progressing')?.message, `ReplicaSet "${set?.metadata.name}" has successfully progressed.`);
  assert.equal(condition(t, 'Available')?.message, 'Deployment has minimum availability.');
  assert.ok(t.events().includes(`Normal ScalingReplicaSet Scaled up replica set ${set?.metadata.name} from 0 to 3`));
  assert.equal(
    t.client.peek(deployments, 'shop', 'web')?.metadata.annotations?.['deployment.kubernetes.io/revision'],
    '1',
  );
  await t.stop();
});

test('a rolling update never has more pods than the surge allows, nor fewer available ones than required', async () => {
  const t = controllerTest({ objects: [[deployments, deployment()]] });
  await t.start(runDeployments, runReplicaSets);
  await t.advance(100);
  await makeReady(t);
  await change(t, (d) => {
    const [container] = d.spec?.template.spec?.containers ?? [];
    if (container !== undefined) container.image = 'web:2';
  });
  for (let round = 0; round < 12 && images(t).some((image) => image === 'web:1'); round++) {
    const running = t.client.peekAll(pods).filter((pod) => pod.status?.phase === 'Running').length;
    assert.ok(running >= 3, `${running} pods run`);
    assert.ok(t.client.peekAll(pods).length <= 4);
    await makeReady(t);
    await t.advance(100);
  }
  await t.advance(100);
  assert.deepEqual(images(t), ['web:2', 'web:2', 'web:2']);
  assert.equal(condition(t, 'Progressing')?.reason, 'NewReplicaSetAvailable');
  assert.equal(
    t.client.peek(deployments, 'shop', 'web')?.metadata.annotations?.['deployment.kubernetes.io/revision'],
    '2',
  );
  await t.stop();
});

test('a rollout without progress is reported as timed out after its deadline', async () => {
  const t = controllerTest({ objects: [[deployments, deployment({ progressDeadlineSeconds: 60 })]] });
  await t.start(runDeployments, runReplicaSets);
  await t.advance(50_000);
  assert.equal(condition(t, 'Progressing')?.status, 'True');
  await t.advance(20_000);
  assert.equal(condition(t, 'Progressing')?.reason, 'ProgressDeadlineExceeded');
  await t.stop();
});

test('a deployment with the strategy Recreate creates new pods after the last old one is deleted', async () => {
  const t = controllerTest({ objects: [[deployments, deployment({ strategy: { type: 'Recreate' } })]] });
  await t.start(runDeployments, runReplicaSets);
  await t.advance(100);
  for (const pod of t.client.peekAll(pods))
    await t.client.update(pods, { ...pod, spec: { containers: [], ...pod.spec, nodeName: 'n' } });
  await makeReady(t);
  await change(t, (d) => {
    const [container] = d.spec?.template.spec?.containers ?? [];
    if (container !== undefined) container.image = 'web:2';
  });
  await t.advance(1000);
  assert.deepEqual(new Set(images(t)), new Set(['web:1']));
  for (const pod of t.client.peekAll(pods))
    await t.client.delete(pods, 'shop', pod.metadata.name ?? '', { gracePeriodSeconds: 0 });
  await t.advance(1000);
  assert.deepEqual(images(t), ['web:2', 'web:2', 'web:2']);
  await t.stop();
});

test('scaling in the middle of a rollout is shared out between the sets', async () => {
  const t = controllerTest({
    objects: [
      [
        deployments,
        deployment({
          replicas: 10,
          strategy: { type: 'RollingUpdate', rollingUpdate: { maxSurge: 3, maxUnavailable: 2 } },
        }),
      ],
    ],
  });
  await t.start(runDeployments, runReplicaSets);
  await t.advance(100);
  await makeReady(t);
  await change(t, (d) => {
    const [container] = d.spec?.template.spec?.containers ?? [];
    if (container !== undefined) container.image = 'broken';
  });
  await t.advance(200);
  const sizes = (): number[] =>
    t.client
      .peekAll(replicaSets)
      .map((set) => set.spec?.replicas ?? 0)
      .toSorted((a, b) => b - a);
  assert.deepEqual(sizes(), [8, 5]);
  await change(t, (d) => {
    if (d.spec !== undefined) d.spec.replicas = 15;
  });
  await t.advance(50);
  assert.deepEqual(sizes(), [11, 7]);
  await t.stop();
});

test('the revision after one that needs 64 bits is the next one', async () => {
  const name = 'deployment.kubernetes.io/revision';
  const spec = deployment().spec;
  assert.ok(spec);
  const old: ReplicaSet = {
    apiVersion: 'apps/v1',
    kind: 'ReplicaSet',
    metadata: {
      name: 'web-old',
      namespace: 'shop',
      labels: { app: 'web' },
      annotations: { [name]: '3546343826724305832' },
    },
    spec: { replicas: 0, selector: spec.selector, template: spec.template ?? {} },
  };
  const next = deployment({
    template: { metadata: { labels: { app: 'web' } }, spec: { containers: [{ name: 'web', image: 'web:2' }] } },
  });
  const t = controllerTest({
    objects: [
      [replicaSets, old],
      [deployments, next],
    ],
  });
  await t.start(runDeployments);
  await t.advance(100);
  assert.equal(t.client.peek(deployments, 'shop', 'web')?.metadata.annotations?.[name], '3546343826724305833');
  await t.stop();
});

test('nothing is written while nothing changes', async () => {
  const t = controllerTest({ objects: [[deployments, deployment()]] });
  await t.start(runDeployments, runReplicaSets);
  await t.advance(100);
  await makeReady(t);
  await t.advance(2000);
  const writes = t.client.writes().length;
  await t.advance(3600_000);
  assert.equal(t.client.writes().length, writes);
  await t.stop();
});

test('a rollout writes the deployment through its status alone, so that its generation counts changes of intent', async () => {
  const t = controllerTest({ objects: [[deployments, deployment()]] });
  await t.start(runDeployments, runReplicaSets);
  await t.advance(50);
  await makeReady(t);
  const controllerWrites = (): (string | undefined)[] =>
    t.client
      .writes()
      .filter(({ verb, resource }) => (verb === 'update' || verb === 'patch') && resource.resource === 'deployments')
      .map(({ subresource }) => subresource);
  assert.deepEqual([...new Set(controllerWrites())], ['status']);
  assert.equal(
    t.client.peek(deployments, 'shop', 'web')?.metadata.annotations?.['deployment.kubernetes.io/revision'],
    '1',
  );
  await t.stop();
});

test('old sets share a smaller size with a new set that was sized for another one', () => {
  const set = (name: string, replicas: number, desired: number): ReplicaSet => ({
    metadata: {
      name,
      annotations: {
        'deployment.kubernetes.io/desired-replicas': String(desired),
        'deployment.kubernetes.io/max-replicas': String(desired + 1),
      },
    },
    spec: { replicas, selector: {} },
    status: { replicas, availableReplicas: replicas },
  });
  const sizes = (desired: number): unknown =>
    scaleAll(deployment(), set('new', 3, desired), [set('old', 3, desired)]).map(({ set: one, replicas }) => [
      one.metadata.name,
      replicas,
    ]);
  assert.deepEqual(sizes(3), [['old', 0]]);
  assert.deepEqual(sizes(5), [
    ['new', 2],
    ['old', 2],
  ]);
});

test('a foreign replica set with the name of the next one is a collision, which leads to another name', async () => {
  const first = controllerTest({ objects: [[deployments, deployment()]] });
  await first.start(runDeployments);
  await first.advance(50);
  const [expected] = first.client.peekAll(replicaSets);
  assert.ok(expected);
  await first.stop();

  const t = controllerTest({ objects: [[deployments, deployment()]] });
  const labels = { app: 'other' };
  t.client.seed(replicaSets, {
    metadata: { name: expected.metadata.name ?? '', namespace: 'shop', labels },
    spec: { replicas: 0, selector: { matchLabels: labels }, template: { metadata: { labels } } },
  } as ReplicaSet);
  await t.start(runDeployments);
  await t.advance(5000);
  const current = t.client.peek(deployments, 'shop', 'web');
  assert.equal(current?.status?.collisionCount, 1);
  const own = t.client.peekAll(replicaSets).filter(({ metadata }) => metadata.ownerReferences !== undefined);
  assert.deepEqual(
    own.map(({ metadata }) => metadata.ownerReferences?.[0]?.uid),
    [current.metadata.uid],
  );
  assert.notEqual(own[0]?.metadata.name, expected.metadata.name);
  await t.stop();
});

test('a paused deployment can be scaled, and rolls a changed template out when it is resumed', async () => {
  const t = controllerTest({ objects: [[deployments, deployment()]] });
  await t.start(runDeployments);
  await t.start(runReplicaSets);
  await t.advance(50);
  await makeReady(t);
  await change(t, ({ spec }) => {
    assert.ok(spec);
    spec.paused = true;
    spec.replicas = 2;
    const [container] = spec.template.spec?.containers ?? [];
    assert.ok(container);
    container.image = 'web:2';
  });
  await t.advance(1000);
  assert.deepEqual(images(t), ['web:1', 'web:1']);
  assert.equal(condition(t, 'Progressing')?.reason, 'DeploymentPaused');
  await change(t, ({ spec }) => {
    assert.ok(spec);
    delete spec.paused;
  });
  for (let round = 0; round < 6; round += 1) {
    await t.advance(1000);
    await makeReady(t);
  }
  assert.deepEqual(images(t), ['web:2', 'web:2']);
  assert.equal(condition(t, 'Progressing')?.reason, 'NewReplicaSetAvailable');
  await t.stop();
});

test('the newest replica sets with former templates stay, as many as the history may have', async () => {
  const t = controllerTest({ objects: [[deployments, deployment({ replicas: 1, revisionHistoryLimit: 1 })]] });
  await t.start(runDeployments);
  await t.start(runReplicaSets);
  for (const image of ['web:1', 'web:2', 'web:3']) {
    await change(t, ({ spec }) => {
      const [container] = spec?.template.spec?.containers ?? [];
      assert.ok(container);
      container.image = image;
    });
    for (let round = 0; round < 4; round += 1) {
      await t.advance(1000);
      await makeReady(t);
    }
  }
  const templates = t.client.peekAll(replicaSets).map(({ spec }) => spec?.template?.spec?.containers[0]?.image);
  assert.deepEqual(templates.toSorted(), ['web:2', 'web:3']);
  await t.stop();
});

/** The bytes of revisions must equal those of kube-controller-manager and kubectl, which compare them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  controllerRevisions,
  daemonSets,
  nodes,
  pods,
  type ResourceOf,
  statefulSets,
} from '../../../../api/client/resources.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { escapeMarkup } from '../../../../api/codec/json.ts';
import { revisionData, revisionHash } from '../../../../controlplane/controllers/controller-revisions.ts';
import type { RunController } from '../../../../controlplane/controllers/controller.ts';
import { runDaemonSets } from '../../../../controlplane/controllers/daemon-set/daemon-set.ts';
import { runStatefulSets } from '../../../../controlplane/controllers/stateful-set/stateful-set.ts';
import { encodeObject, parseObject } from '../../../../controlplane/storage/object-bytes.ts';
import { controllerTest } from '../../../fakes/fake-controllers.ts';

const TEMPLATE = {
  spec: { terminationGracePeriodSeconds: 30, containers: [{ name: 'c', image: 'i', args: ['a && b > c < d'] }] },
  metadata: { labels: { b: '1', a: '2' } },
} as unknown as Parameters<typeof revisionData>[0];

/** The output of Go's `json.Marshal` for the patch of this template. */
const WRITTEN =
  '{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"a":"2","b":"1"}},"spec":{"containers":[{"args":' +
  '["a \\u0026\\u0026 b \\u003e c \\u003c d"],"image":"i","name":"c"}],"terminationGracePeriodSeconds":30}}}}';

test('a revision holds its template with members in order, written as Go writes it', () => {
  const data = revisionData(TEMPLATE);
  assert.equal(escapeMarkup(JSON.stringify(data)), WRITTEN);
  const metadata = { name: 'r', namespace: 'n' };
  const bytes = encodeObject({ apiVersion: 'apps/v1', kind: 'ControllerRevision', metadata, data, revision: 1 });
  assert.ok(bytes.toString().includes(`"data":${WRITTEN},`), bytes.toString());
  assert.deepEqual(parseObject(bytes)['data'], data);
});

test('text without markup is left as it is, line separators are not', () => {
  assert.equal(escapeMarkup('{"a":"ü\\n"}'), '{"a":"ü\\n"}');
  assert.equal(escapeMarkup('"\u2028\u2029"'), '"\\u2028\\u2029"');
});

test('the name of a revision has the hash of kube-controller-manager', () => {
  const container = {
    image: 'app:1',
    imagePullPolicy: 'IfNotPresent',
    name: 'c',
    resources: {},
    terminationMessagePath: '/dev/termination-log',
    terminationMessagePolicy: 'File',
  };
  const spec = {
    containers: [container],
    dnsPolicy: 'ClusterFirst',
    restartPolicy: 'Always',
    schedulerName: 'default-scheduler',
    securityContext: {},
    terminationGracePeriodSeconds: 30,
  };
  const template = { metadata: { labels: { app: 'x' } }, spec } as unknown as Parameters<typeof revisionData>[0];
  assert.equal(revisionHash(revisionData(template), 0), '6ff664d558');
  assert.notEqual(revisionHash(revisionData(template), 1), '6ff664d558');
});

const labels = { app: 'db' };
const set = {
  metadata: { name: 'db', namespace: 'shop' },
  spec: {
    selector: { matchLabels: labels },
    template: { metadata: { labels }, spec: { containers: [{ name: 'c', image: 'i' }] } },
  },
};
const hashes = [0, 1].map((count) => revisionHash(revisionData(set.spec.template), count));
const foreign = {
  metadata: { name: `db-${hashes[0]}`, namespace: 'shop' },
  data: revisionData({ spec: { containers: [] } }),
  revision: 1,
};

for (const [kind, run, resource] of [
  ['stateful set', runStatefulSets, statefulSets],
  ['daemon set', runDaemonSets, daemonSets],
] as readonly (readonly [string, RunController, ResourceOf<KubeObject & { status?: { collisionCount?: number } }>])[])
  test(`a ${kind} whose revision has the name of another one counts the collision and takes another name`, async () => {
    const t = controllerTest({
      objects: [
        [resource, structuredClone(set)],
        [controllerRevisions, structuredClone(foreign)],
        [nodes, { metadata: { name: 'n' } }],
      ],
    });
    await t.start(run);
    await t.advance(10_000);
    assert.equal(t.client.peek(resource, 'shop', 'db')?.status?.collisionCount, 1);
    assert.deepEqual(
      t.client.peekAll(controllerRevisions).map(({ metadata }) => metadata.name),
      hashes.map((hash) => `db-${hash}`),
    );
    assert.equal(t.client.peekAll(pods).length, 1);
  });

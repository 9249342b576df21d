import assert from 'node:assert/strict';
import { test } from 'node:test';
import { appsKinds } from '../../../../../controlplane/registry/kinds/apps/apps.ts';
import { workloadScale } from '../../../../../controlplane/registry/scale-view.ts';
import { rulesOf } from './strategy-fixture.ts';

const deployments = rulesOf(appsKinds, 'apps', 'deployments');
const statefulSets = rulesOf(appsKinds, 'apps', 'statefulsets');
const daemonSets = rulesOf(appsKinds, 'apps', 'daemonsets');
const revisions = rulesOf(appsKinds, 'apps', 'controllerrevisions');
const controllers = rulesOf(appsKinds, '', 'replicationcontrollers');

const selector = { matchLabels: { app: 'a' } };
const template = { metadata: { labels: { app: 'a' } }, spec: { containers: [{ name: 'c', image: 'app:1' }] } };

test('a controller revision reports its number before its data', () => {
  assert.deepEqual(revisions.create({ revision: -1 }).errors, [
    'revision: Invalid value: -1: must be greater than or equal to 0',
    'data: Required value: data is mandatory',
  ]);
});

test('the Scale of a replication controller has its plain labels as the selector, whatever their names are', () => {
  const selectorOf = (labels: object): string | undefined =>
    workloadScale.scaleOf({ metadata: { name: 'x' }, spec: { selector: labels } }).status?.selector;
  assert.equal(selectorOf({ app: 'a' }), 'app=a');
  assert.equal(selectorOf({ matchLabels: 'a' }), 'matchLabels=a');
  assert.equal(selectorOf(selector), 'app=a');
});

test('without a selector no template matches', () => {
  const { errors } = deployments.create({ spec: { template } });
  assert.deepEqual(errors, [
    'spec.selector: Required value',
    'spec.template.metadata.labels: Invalid value: {"app":"a"}: `selector` does not match template `labels`',
  ]);
});

test('an invalid selector gives two errors, and its template is not validated', () => {
  const { errors } = deployments.create({
    spec: { selector: { matchExpressions: [{ key: 'app', operator: 'Near' }] }, template: {} },
  });
  assert.deepEqual(errors, [
    'spec.selector.matchExpressions[0].operator: Invalid value: "Near": not a valid selector operator',
    'spec.selector: Invalid value: {"matchExpressions":[{"key":"app","operator":"Near"}]}: invalid label selector',
  ]);
});

test('claims and the service of a stateful set are checked', () => {
  const { errors } = statefulSets.create({
    spec: { selector, template, serviceName: 'a.b', volumeClaimTemplates: [{ metadata: { name: 'x' }, spec: {} }] },
  });
  assert.deepEqual(errors, [
    'spec.volumeClaimTemplates[0].spec.accessModes: Required value: at least 1 access mode is required',
    'spec.volumeClaimTemplates[0].spec.resources[storage]: Required value',
    'spec.serviceName: Invalid value: "a.b": must not contain dots',
  ]);
});

test('containers of a stateful set mount its claims', () => {
  const spec = (mount: string) => {
    const containers = [{ name: 'c', image: 'i', volumeMounts: [{ name: mount, mountPath: '/data' }] }];
    const resources = { requests: { storage: '1Gi' } };
    return {
      selector,
      template: { ...template, spec: { containers } },
      volumeClaimTemplates: [{ metadata: { name: 'data' }, spec: { accessModes: ['ReadWriteOnce'], resources } }],
    };
  };
  assert.deepEqual(statefulSets.create({ spec: spec('data') }).errors, []);
  assert.deepEqual(statefulSets.create({ spec: spec('other') }).errors, [
    'spec.template.spec.containers[0].volumeMounts[0].name: Not found: "other"',
  ]);
});

test('a daemon set counts the changes of its template in an annotation', () => {
  const key = 'deprecated.daemonset.template.generation';
  const { object } = daemonSets.create({ spec: { selector, template } });
  assert.equal(object.metadata.annotations?.[key], '1');
});

test('a replication controller without a template is refused for that alone', () => {
  const { errors } = controllers.create({ spec: { selector: { app: 'a' } } });
  assert.deepEqual(errors, ['spec.template: Required value']);
});

test('a controller revision holds an object', () => {
  assert.deepEqual(revisions.create({ revision: 3, data: 'text' }).errors, [
    'data: Required value: data must be a valid JSON object',
  ]);
});

test('the pods of a stateful set get their hostname from the controller, and claims stand before other volumes', () => {
  const { errors } = statefulSets.create({
    spec: {
      selector,
      template: {
        ...template,
        spec: { ...template.spec, hostname: 'Bad!', subdomain: 'Bad!', volumes: [{ name: 'v', nfs: { path: '/p' } }] },
      },
      volumeClaimTemplates: [{ spec: { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '1Gi' } } } }],
    },
  });
  assert.deepEqual(errors, [
    'spec.template.spec.volumes[0].persistentVolumeClaim.claimName: Required value',
    'spec.template.spec.volumes[0].name: Required value',
    'spec.template.spec.volumes[1].nfs.server: Required value',
  ]);
});

test('wrong labels of the template of a stateful set are reported twice', () => {
  const labels = { app: 'a', x: 'a b' };
  const { errors } = statefulSets.create({ spec: { selector, template: { ...template, metadata: { labels } } } });
  assert.equal(errors.length, 2);
  assert.equal(errors[0], errors[1]);
});

test('a stateful set warns of fractions of a byte and of a history without limit', () => {
  const claim = { spec: { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '100m' } } } };
  const { warnings } = statefulSets.create({
    spec: { selector, template, revisionHistoryLimit: -1, volumeClaimTemplates: [claim] },
  });
  assert.deepEqual(warnings, [
    'spec.volumeClaimTemplates[0].resources.requests[storage]: fractional byte value "100m" is invalid, must be an integer',
    'spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended',
  ]);
});

test('a name that begins the names of pods should be a DNS label', () => {
  const text =
    'metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]';
  const metadata = { name: 'a.b' };
  assert.deepEqual(deployments.create({ metadata, spec: { selector, template } }).warnings, [text]);
  assert.deepEqual(controllers.create({ metadata, spec: { template } }).warnings, [text]);
  assert.deepEqual(daemonSets.create({ metadata, spec: { selector, template } }).warnings, []);
});

test('strategies that are not supported are shown with the names of their Go fields', () => {
  const { errors } = deployments.create({
    spec: { selector, template, strategy: { type: 'Odd', rollingUpdate: { maxSurge: 1, maxUnavailable: '25%' } } },
  });
  assert.deepEqual(errors, [
    'spec.strategy: Unsupported value: {"Type":"Odd","RollingUpdate":{"MaxUnavailable":"25%","MaxSurge":1}}: supported values: "Recreate", "RollingUpdate"',
  ]);
});

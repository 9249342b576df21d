/**
 * Laws for every built-in kind: an accepted object can be read, written back, applied and listed, and a refused object is
 * refused by every kind of write, including dry runs.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { systemClock } from '../../../../api/machinery/clock.ts';
import { cloneJson } from '../../../../api/meta/json-equality.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { builtinResources } from '../../../../api/schema/resources.ts';
import { StatusError } from '../../../../api/meta/status-error.ts';
import { createFieldManagement } from '../../../../controlplane/registry/managed-fields.ts';
import type { Patch } from '../../../../controlplane/model/rest.ts';
import { openFixture, type Fixture } from './registry-fixture.ts';

interface Sample {
  /** A path such as `apps/v1/deployments` or `v1/pods`. */
  readonly path: string;
  readonly object: KubeObject;
}

const SAMPLES = join(import.meta.dirname, '../../../hostile/one-of-each-kind.jsonl');

const samples: readonly Sample[] = readFileSync(SAMPLES, 'utf8')
  .split('\n')
  .filter((line) => line !== '')
  .map((line) => {
    const { path, object } = JSON.parse(line) as { path: string; object: KubeObject };
    const parts = path.split('/').filter((part) => part !== '' && part !== 'api' && part !== 'apis');
    const inNamespace = parts.indexOf('namespaces');
    if (inNamespace > 0 && parts.length > inNamespace + 2) parts.splice(inNamespace, 2);
    return { path: parts.join('/'), object };
  });

let fixture: Fixture;
before(async () => {
  fixture = await openFixture(undefined, undefined, (expected, _decoder, others) =>
    createFieldManagement(systemClock, expected, others),
  );
});
after(() => fixture.close());

function isServed(path: string): boolean {
  const parts = path.split('/');
  const [resource = '', version = '', group = ''] = parts.toReversed();
  const rest = fixture.registry.catalog.find(group, version, resource, '');
  return rest?.create !== undefined && rest.update !== undefined && rest.get !== undefined;
}

/** The kinds without a sample: definitions need the part of the server that serves them. */
const WITHOUT_SAMPLE = ['apiextensions.k8s.io/v1/customresourcedefinitions'];

/** The namespace of the samples. */
const NAMESPACE = 'etcdstoragepathtestnamespace';

/** Returns the object without fields that the server sets and without unknown fields. */
function configurationOf({ apiVersion, kind, metadata, ...rest }: KubeObject): KubeObject {
  const { name, labels, annotations } = metadata;
  const kept = {
    name,
    ...(labels === undefined ? {} : { labels }),
    ...(annotations === undefined ? {} : { annotations }),
  };
  return cloneJson({ ...rest, apiVersion, kind, metadata: kept }) as KubeObject;
}

const applyPatch = (object: KubeObject): Patch => ({ type: 'apply', body: object, duplicates: [], force: true });

/** Returns the fields in which equally created objects must be equal. */
function essence({ metadata, ...rest }: KubeObject): object {
  const { uid: _uid, resourceVersion: _version, creationTimestamp: _time, managedFields: _fields, ...kept } = metadata;
  return { ...rest, metadata: kept };
}

/** Resolves to the code and the causes of a refusal, or to `undefined` if the write succeeds. */
async function refusalOf(write: Promise<KubeObject>): Promise<object | undefined> {
  try {
    await write;
    return undefined;
  } catch (error) {
    if (!(error instanceof StatusError)) throw error;
    const { code, reason, details } = error.status;
    const causes = (details?.causes ?? []).map(({ field, reason: why, message }) => `${field}: ${why}: ${message}`);
    return { code, reason, causes };
  }
}

describe('for every kind', () => {
  for (const { path, object } of samples) {
    test(`${path}: an accepted object is read, listed, written back and applied`, async (context) => {
      if (!isServed(path)) return context.skip('the kind is not served by default or cannot be written');
      const tried = await fixture.create(path, object, NAMESPACE, { dryRun: true });
      const made = await fixture.create(path, object, NAMESPACE);
      const name = made.metadata.name ?? '';
      assert.equal(name, tried.metadata.name, 'a dry run names the object alike');
      const read = await fixture.get(path, name, NAMESPACE);
      assert.deepEqual(read, made, 'a read returns what was made');
      const list = await fixture.list(path, {}, NAMESPACE);
      assert.ok(
        list.entries.some((entry) => entry.object.metadata.name === name),
        'the object is listed',
      );
      const written = await fixture.update(path, cloneJson(read), NAMESPACE);
      assert.equal(written.metadata.resourceVersion, read.metadata.resourceVersion, 'an equal update changes nothing');
      const patch = applyPatch(configurationOf(read));
      const applied = await fixture.patch(path, name, patch, NAMESPACE);
      assert.deepEqual(essence(applied), essence(read), 'an apply of what was made changes nothing but owners');
      const again = await fixture.patch(path, name, patch, NAMESPACE);
      assert.equal(again.metadata.resourceVersion, applied.metadata.resourceVersion, 'an equal apply changes nothing');
      return undefined;
    });

    test(`${path}: a bad object is refused alike by create, apply and their dry runs`, async (context) => {
      if (!isServed(path)) return context.skip('the kind is not served by default or cannot be written');
      const bad = configurationOf(await fixture.create(path, object, NAMESPACE, { dryRun: true }).catch(existing));
      const name = 'law-breaker';
      bad.metadata = { name, labels: { 'not a key': 'x' } };
      const dryRun = { dryRun: true };
      const wanted = await refusalOf(fixture.create(path, bad, NAMESPACE));
      assert.ok(wanted !== undefined, 'the label is refused');
      assert.deepEqual(await refusalOf(fixture.create(path, bad, NAMESPACE, dryRun)), wanted);
      const patch = applyPatch(bad);
      assert.deepEqual(await refusalOf(fixture.patch(path, name, patch, NAMESPACE)), wanted);
      assert.deepEqual(await refusalOf(fixture.patch(path, name, patch, NAMESPACE, dryRun)), wanted);
      return undefined;
    });

    test(`${path}: a bad change is refused alike by update, patch, apply and their dry runs`, async (context) => {
      if (!isServed(path)) return context.skip('the kind is not served by default or cannot be written');
      const name = object.metadata.name ?? '';
      const labels = { 'not a key': 'x' };
      const read = await fixture.get(path, name, NAMESPACE);
      const changed = { ...cloneJson(read), metadata: { ...cloneJson(read.metadata), labels } };
      const merge: Patch = { type: 'merge', body: { metadata: { labels } }, duplicates: [] };
      const config = configurationOf(read);
      const apply = applyPatch({ ...config, metadata: { ...config.metadata, labels } });
      const wanted = await refusalOf(fixture.update(path, changed, NAMESPACE));
      assert.ok(wanted !== undefined, 'the label is refused');
      for (const options of [{ dryRun: false }, { dryRun: true }]) {
        assert.deepEqual(await refusalOf(fixture.update(path, changed, NAMESPACE, options)), wanted);
        assert.deepEqual(await refusalOf(fixture.patch(path, name, merge, NAMESPACE, options)), wanted);
        assert.deepEqual(await refusalOf(fixture.patch(path, name, apply, NAMESPACE, options)), wanted);
      }
      return undefined;
    });

    /** Returns the sample that the previous test has created. */
    async function existing(): Promise<KubeObject> {
      return await fixture.get(path, object.metadata.name ?? '', NAMESPACE);
    }
  }
});

test('there is a sample of every stable kind that can be created, read and updated', () => {
  const sampled = new Set(samples.map(({ path }) => path));
  const missing = builtinResources()
    .filter(({ version }) => /^v\d+$/.test(version))
    .map(({ group, version, resource }) => [group, version, resource].filter((part) => part !== '').join('/'))
    .filter((path) => isServed(path) && !sampled.has(path));
  assert.deepEqual(missing, WITHOUT_SAMPLE);
});

test('an apply with a UID does not create an object', async () => {
  const object = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'gone', uid: 'abc' } };
  await assert.rejects(fixture.patch('v1/configmaps', 'gone', applyPatch(object)), {
    code: 409,
    message:
      'Operation cannot be fulfilled on configmaps "gone": uid mismatch: the provided object specified uid abc, and no existing object was found',
  });
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { generateName, nameIsSubdomain } from '../../../../api/meta/names.ts';
import type { ObjectMeta } from '../../../../api/meta/object.ts';
import { invalid } from '../../../../api/meta/field-error.ts';
import { newInvalid } from '../../../../api/meta/status-error.ts';
import { validateMetadata, validateMetadataUpdate } from '../../../../api/meta/validation.ts';

const rules = { namespaced: true, nameRule: nameIsSubdomain, builtIn: true };
const faults = (meta: ObjectMeta): string[] => validateMetadata({ namespace: 'ns', ...meta }, rules).map(String);

test('valid metadata has no errors', () => {
  assert.deepEqual(
    faults({
      name: 'a.b',
      labels: { 'example.com/x': '' },
      annotations: { X: 'any' },
      finalizers: ['orphan', 'example.com/f'],
    }),
    [],
  );
});

test('every error is reported in order', () => {
  const found = faults({
    name: 'l',
    ownerReferences: [{ apiVersion: 'v1', kind: 'ConfigMap', name: '', uid: '' }],
    finalizers: ['nodomain'],
  });
  assert.deepEqual(found, [
    'metadata.ownerReferences.name: Invalid value: "": must not be empty',
    'metadata.ownerReferences.uid: Invalid value: "": must not be empty',
    'metadata.finalizers[0]: Invalid value: "nodomain": name is neither a standard finalizer name nor is it fully qualified',
  ]);
  assert.deepEqual(faults({}), ['metadata.name: Required value: name or generateName is required']);
});

test('the path of a finalizer that is no qualified name has no index', () => {
  const [form, domain] = faults({ name: 'l', finalizers: ['a b'] });
  assert.match(form ?? '', /^metadata\.finalizers: Invalid value: "a b": name part must consist of/);
  assert.match(domain ?? '', /^metadata\.finalizers\[0\]: Invalid value: "a b": name is neither/);
});

test('an object has at most one controller', () => {
  const owner = (name: string): object => ({ apiVersion: 'v1', kind: 'ConfigMap', name, uid: name, controller: true });
  assert.deepEqual(faults({ name: 'a', ownerReferences: [owner('x'), owner('y')] as never }), [
    'metadata.ownerReferences: Invalid value: [{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"x","controller":true},{"apiVersion":"v1","kind":"ConfigMap","name":"y","uid":"y","controller":true}]: Only one reference can have Controller set to true. Found "true" in references for ConfigMap/x and ConfigMap/y',
  ]);
});

test('the total size of annotations is limited', () => {
  assert.deepEqual(faults({ name: 'a', annotations: { a: 'x'.repeat(256 * 1024) } }), [
    'metadata.annotations: Too long: may not be more than 262144 bytes',
  ]);
});

test('server-set fields are immutable, and a terminating object gets no new finalizers', () => {
  const old = { name: 'a', namespace: 'ns', uid: 'u', resourceVersion: '1', deletionTimestamp: '2026-01-01T00:00:00Z' };
  const next = { ...old, uid: 'v', finalizers: ['example.com/three'] };
  assert.deepEqual(validateMetadataUpdate(next, old, { builtIn: true }).map(String), [
    'metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"example.com/three"}',
    'metadata.uid: Invalid value: "v": field is immutable',
  ]);
});

test('generated names keep the base and do not become too long', () => {
  assert.match(generateName('web-'), /^web-[bcdfghjklmnpqrstvwxz2456789]{5}$/);
  assert.equal(generateName('x'.repeat(100)).length, 63);
});

test('errors that quote large values are listed up to a bound and then counted', () => {
  const value = 'x'.repeat(10_000);
  const errors = Array.from({ length: 10_000 }, (_, at) => invalid(`f${at}`, value, 'wrong'));
  const { status } = newInvalid({ group: '', resource: 'Pod' }, 'a', errors);
  assert.match(status.message ?? '', /^Pod "a" is invalid: \[f0: Invalid value: .*, and \d+ more\]$/);
  assert.ok((status.message ?? '').length < 1_000_000);
  assert.ok((status.details?.causes?.length ?? 0) < 100);
  assert.equal(newInvalid({ group: '', resource: 'Pod' }, 'a', errors.slice(0, 5)).status.details?.causes?.length, 5);
});

test('values of errors are quoted as Go quotes texts and encodes JSON', () => {
  const shown = (value: unknown): string => invalid('f', value, '').body().replace('Invalid value: ', '');
  assert.equal(shown('é 😀\t\u0001\u007f\u00a0\u200b\u{e0001}'), '"é 😀\\t\\x01\\x7f\\u00a0\\u200b\\U000e0001"');
  assert.equal(shown({ a: 'x<y> & z\u2028' }), '{"a":"x\\u003cy\\u003e \\u0026 z\\u2028"}');
});

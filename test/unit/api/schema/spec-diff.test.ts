/** Differences of specs that others write stay small, and cost nothing where nobody reads them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { forbidden } from '../../../../api/meta/field-error.ts';
import { newInvalid } from '../../../../api/meta/status-error.ts';
import { typeDiff } from '../../../../api/schema/spec-diff.ts';

const POD_SPEC = 'io.k8s.api.core.v1.PodSpec';
const terms = (count: number, key: string) => ({
  affinity: {
    podAntiAffinity: {
      requiredDuringSchedulingIgnoredDuringExecution: Array.from({ length: count }, () => ({ topologyKey: key })),
    },
  },
});

test('the differences of two specs are shown with the names of the internal type', () => {
  assert.match(typeDiff(POD_SPEC, terms(1, 'a'), terms(1, 'b')), /-\s+"TopologyKey": "a"[^]*\+\s+"TopologyKey": "b"/);
});

test('specs with tens of thousands of values, whose form has thirty times as many lines, are not compared', () => {
  const diff = typeDiff(POD_SPEC, terms(15_000, 'a'), terms(15_000, 'b'));
  assert.equal(diff, '\nThe values are too many to be compared\n');
});

test('a single error does not make a response larger than the limit for all errors', () => {
  const error = newInvalid({ group: '', resource: 'Pod' }, 'p', [forbidden('spec', 'x'.repeat(10_000_000))]);
  assert.ok(JSON.stringify(error.status).length < 600_000);
  assert.match(error.message, /x{100}\.\.\. \(9737867 more characters\)/);
});

test('the details of errors beyond the limit are not computed', () => {
  let computed = 0;
  const errors = Array.from({ length: 1000 }, () =>
    forbidden('spec', () => {
      computed += 1;
      return 'x'.repeat(100_000);
    }),
  );
  newInvalid({ group: '', resource: 'Pod' }, 'p', errors);
  assert.ok(computed < 10, `${computed} were computed`);
});

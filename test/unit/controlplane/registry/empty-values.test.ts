/** Empty lists and maps in requests: validation sees them, and nothing that is serialized has them. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { isStatusError } from '../../../../api/meta/status-error.ts';
import { openFixture, type Fixture } from './registry-fixture.ts';

const container = { name: 'c', image: 'app:1' };
const pod = (spec: object): object => ({ metadata: { name: 'p' }, spec: { containers: [container], ...spec } });

describe('an empty list or map', () => {
  let fixture: Fixture;
  before(async () => {
    fixture = await openFixture();
  });
  after(() => fixture.close());

  async function messageOf(path: string, object: object): Promise<string> {
    try {
      await fixture.create(path, object);
      return '';
    } catch (error) {
      assert.ok(isStatusError(error));
      return error.status.message ?? '';
    }
  }

  const REFUSED: readonly (readonly [string, string, object, RegExp])[] = [
    [
      'claims of the resources of a pod',
      'v1/pods',
      pod({ resources: { claims: [] } }),
      /spec\.resources\.claims: Forbidden/,
    ],
    [
      'dependencies of a schema',
      'apiextensions.k8s.io/v1/customresourcedefinitions',
      definition({ dependencies: {} }),
      /dependencies is not supported/,
    ],
  ];
  for (const [what, path, object, wanted] of REFUSED) {
    test(`is refused like another one where the field may not be given: ${what}`, async () => {
      assert.match(await messageOf(path, object), wanted);
    });
  }

  test('is shown in an error, but not in a selector, which has its serialized form', async () => {
    const spec = (selector: object, labels: object): object => ({
      metadata: { name: 'r' },
      spec: { selector, template: { metadata: { labels }, spec: { containers: [container] } } },
    });
    const controller = await messageOf('v1/replicationcontrollers', spec({ a: 'b' }, {}));
    assert.match(controller, /spec\.template\.metadata\.labels: Invalid value: \{\}/);
    const set = await messageOf('apps/v1/replicasets', spec({ matchLabels: {} }, { a: 'b' }));
    assert.match(set, /spec\.selector: Invalid value: \{\}: empty selector/);
  });

  test('is not stored', async () => {
    await fixture.create('v1/pods', pod({ nodeSelector: {}, hostAliases: [] }));
    const { spec } = await fixture.get('v1/pods', 'p');
    assert.ok(spec !== null && typeof spec === 'object');
    assert.ok(!('nodeSelector' in spec) && !('hostAliases' in spec));
  });

  test('changes the generation of a network policy only', async () => {
    const spec = { podSelector: {}, policyTypes: ['Ingress'] };
    const policy = await fixture.create('networking.k8s.io/v1/networkpolicies', { metadata: { name: 'n' }, spec });
    const changed = { ...policy, spec: { ...spec, ingress: [] } };
    const updated = await fixture.update('networking.k8s.io/v1/networkpolicies', changed);
    assert.equal(updated.metadata.generation, 2);
    const budget = { metadata: { name: 'b' }, spec: { selector: { matchLabels: { a: 'b' } }, minAvailable: 1 } };
    const made = await fixture.create('policy/v1/poddisruptionbudgets', budget);
    const same = { ...made, spec: { ...budget.spec, selector: { ...budget.spec.selector, matchExpressions: [] } } };
    assert.equal((await fixture.update('policy/v1/poddisruptionbudgets', same)).metadata.generation, 1);
  });
});

function definition(schema: object): object {
  const openAPIV3Schema = { type: 'object', properties: { spec: { type: 'object', ...schema } } };
  return {
    metadata: { name: 'things.example.com' },
    spec: {
      group: 'example.com',
      scope: 'Namespaced',
      names: { kind: 'Thing', plural: 'things' },
      versions: [{ name: 'v1', served: true, storage: true, schema: { openAPIV3Schema } }],
    },
  };
}

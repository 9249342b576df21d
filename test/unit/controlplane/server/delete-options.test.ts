/**
 * Tests bodies of deletions, over HTTP: 'controlplane/server/delete-options-kind.ts', 'controlplane/server/body.ts' and
 * 'controlplane/server/options.ts'. The expected messages are those of kube-apiserver 1.36.2.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { TestedPlane } from '../../../integration/tested-plane.ts';

let tested: TestedPlane;
before(async () => {
  tested = await TestedPlane.start();
});
after(() => tested.close());

const MISSING = 'configmaps "x" not found';
const SCHEME = 'in scheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27"';
const unmarshal = (what: string): string => `json: cannot unmarshal number into Go struct field ${what}`;

for (const [body, message] of [
  [{ kind: '', apiVersion: '' }, MISSING],
  [{ kind: null }, MISSING],
  [{ kind: 'DeleteOptions', apiVersion: 'x/v1' }, MISSING],
  [{ kind: 'Foo' }, `no kind "Foo" is registered for version "meta.k8s.io/v1" ${SCHEME}`],
  [{ kind: 'Pod', apiVersion: 'v1' }, `no kind "Pod" is registered for version "v1" ${SCHEME}`],
  [{ kind: 'GetOptions', apiVersion: 'v1' }, `no kind "GetOptions" is registered for version "v1" ${SCHEME}`],
  [{ kind: 'GetOptions' }, 'converting (v1.GetOptions) to (v1.DeleteOptions): unknown conversion'],
  [{ kind: 'Status', apiVersion: 'v1' }, 'converting (v1.Status) to (v1.DeleteOptions): unknown conversion'],
  [{ kind: 5 }, `couldn't get version/kind; json parse error: ${unmarshal('.kind of type string')}`],
  [{ apiVersion: 'a/b/c' }, 'unexpected GroupVersion string: a/b/c'],
  [{ propagationPolicy: 5 }, unmarshal('DeleteOptions.propagationPolicy of type v1.DeletionPropagation')],
  [{ preconditions: { uid: 5 } }, unmarshal('Preconditions.preconditions.uid of type types.UID')],
  [{ preconditions: { resourceVersion: 5 } }, unmarshal('Preconditions.preconditions.resourceVersion of type string')],
] as const)
  test(`a deletion with ${JSON.stringify(body)}`, async () => {
    const path = '/api/v1/namespaces/default/configmaps/x';
    const { text } = await tested.call({ method: 'DELETE', path, body });
    assert.equal((JSON.parse(text) as { readonly message: string }).message, message);
  });

/** Tests mutating policies for requests to `scale`: 'controlplane/start/admission.ts'. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { until } from '../../../../../until.ts';
import { TestedPlane } from '../../../../../integration/tested-plane.ts';

const ADMISSION = '/apis/admissionregistration.k8s.io/v1';
const DEPLOYMENTS = '/apis/apps/v1/namespaces/default/deployments';

test('a configuration of a Scale is refused, because the document of autoscaling/v1 does not describe the kind', async () => {
  const tested = await TestedPlane.start();
  try {
    const post = async (path: string, body: object): Promise<void> => {
      const { status, text } = await tested.call({ method: 'POST', path, body });
      assert.equal(status, 201, text);
    };
    const labels = { a: 'b' };
    const template = { metadata: { labels }, spec: { containers: [{ name: 'c', image: 'i' }] } };
    await post(DEPLOYMENTS, { metadata: { name: 'd' }, spec: { selector: { matchLabels: labels }, template } });
    const rule = { apiGroups: ['apps'], apiVersions: ['v1'], operations: ['*'], resources: ['deployments/scale'] };
    await post(`${ADMISSION}/mutatingadmissionpolicies`, {
      metadata: { name: 'p' },
      spec: {
        reinvocationPolicy: 'Never',
        matchConstraints: { resourceRules: [rule] },
        mutations: [
          {
            patchType: 'ApplyConfiguration',
            applyConfiguration: { expression: 'Object{spec: Object.spec{replicas: 3}}' },
          },
        ],
      },
    });
    await post(`${ADMISSION}/mutatingadmissionpolicybindings`, { metadata: { name: 'b' }, spec: { policyName: 'p' } });
    const refused = await until('the policy', async () => {
      const answer = await tested.call({
        method: 'PATCH',
        path: `${DEPLOYMENTS}/d/scale?dryRun=All`,
        type: 'application/merge-patch+json',
        body: { spec: { replicas: 2 } },
      });
      return answer.status === 200 ? undefined : answer;
    });
    assert.equal(refused.status, 403);
    assert.match(
      (JSON.parse(refused.text) as { readonly message: string }).message,
      /: error applying patch: failed to convert patch object to typed object: no corresponding type for autoscaling\/v1, Kind=Scale$/,
    );
  } finally {
    await tested.close();
  }
});

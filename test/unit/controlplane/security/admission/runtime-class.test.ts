/** RuntimeClass: what a class adds to its pods, and the cost of merging its tolerations. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pod } from '../../../../../api/kinds/kinds.ts';
import { runtimeClasses } from '../../../../../api/client/resources.ts';
import { isStatusError } from '../../../../../api/meta/status-error.ts';
import type { AdmissionAttributes } from '../../../../../controlplane/security/admission/admission.ts';
import { runtimeClassPlugin } from '../../../../../controlplane/security/admission/runtime-class.ts';
import { fixedListers } from '../../../../fakes/fixed-listers.ts';

async function admitted(tolerations: number): Promise<number> {
  const scheduling = { tolerations: [{ key: 'sandbox', operator: 'Exists' }] };
  const object = { metadata: { name: 'sandbox' }, handler: 'h', scheduling };
  const plugin = runtimeClassPlugin(fixedListers([{ resource: runtimeClasses, object }]));
  const pod: Pod = {
    metadata: { name: 'p', namespace: 'n' },
    spec: {
      containers: [{ name: 'c', image: 'i' }],
      runtimeClassName: 'sandbox',
      tolerations: Array.from({ length: tolerations }, (_, index) => ({ key: `k${index}`, operator: 'Exists' })),
    },
  };
  const attributes = { operation: 'CREATE', resource: { group: '', resource: 'pods' }, subresource: '', object: pod };
  await plugin.admit?.(attributes as unknown as AdmissionAttributes, new AbortController().signal);
  return pod.spec?.tolerations?.length ?? 0;
}

test('a pod gets the tolerations of its class', async () => {
  assert.equal(await admitted(3), 4);
});

test('a pod with more tolerations than can be compared with those of its class is refused', async () => {
  await assert.rejects(admitted(50_000), (error) => isStatusError(error, 'RequestEntityTooLarge'));
});

test('a pod whose class is missing is refused under its name, its prefix or as unknown', async () => {
  const plugin = runtimeClassPlugin(fixedListers([]));
  const refused = async (metadata: object): Promise<unknown> => {
    const object = { metadata, spec: { runtimeClassName: 'none' } };
    const attributes = {
      operation: 'CREATE',
      resource: { group: '', resource: 'pods' },
      name: '',
      subresource: '',
      object,
    };
    const admitted = plugin.admit?.(attributes as unknown as AdmissionAttributes, new AbortController().signal);
    return await Promise.resolve(admitted).catch((error: Error) => error.message.split(' is ')[0]);
  };
  const texts = await Promise.all([{ name: 'p' }, { generateName: 'p-' }, {}].map(refused));
  assert.deepEqual(texts, ['pods "p"', 'pods "p-"', 'pods "Unknown"']);
});

test('labels and resources may have the names that every object inherits', async () => {
  const scheduling = { nodeSelector: { constructor: 'a' } };
  const object = { metadata: { name: 'sandbox' }, handler: 'h', scheduling, overhead: { podFixed: { cpu: '1' } } };
  const plugin = runtimeClassPlugin(fixedListers([{ resource: runtimeClasses, object }]));
  const admit = async (overhead?: Record<string, string>): Promise<Pod> => {
    const pod = { metadata: { name: 'p' }, spec: { containers: [], runtimeClassName: 'sandbox', overhead } };
    const attributes = { operation: 'CREATE', resource: { group: '', resource: 'pods' }, subresource: '', object: pod };
    await plugin.admit?.({ ...attributes, name: 'p' } as unknown as AdmissionAttributes, new AbortController().signal);
    return pod as unknown as Pod;
  };
  assert.deepEqual((await admit()).spec?.nodeSelector, { constructor: 'a' });
  await assert.rejects(admit({ constructor: '1' }), (error) => isStatusError(error, 'Forbidden'));
});

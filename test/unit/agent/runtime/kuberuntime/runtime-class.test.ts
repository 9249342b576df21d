/** Tests which runtime handler a pod gets. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { runtimeHandlerOf } from '../../../../../agent/runtime/kuberuntime/runtime-class.ts';
import type { Client } from '../../../../../api/client/client.ts';
import { newNotFound } from '../../../../../api/meta/status-error.ts';

const client = {
  get: async (_resource: unknown, _namespace: string, name: string) => {
    if (name !== 'sandboxed') throw newNotFound({ group: 'node.k8s.io', resource: 'runtimeclasses' }, name);
    return { metadata: { name }, handler: 'kata' };
  },
} as unknown as Pick<Client, 'get'>;
const pod = (runtimeClassName?: string): Pod => ({ metadata: {}, spec: { runtimeClassName } }) as unknown as Pod;

describe('the handler of a pod', () => {
  it("is the runtime's own without a class", async () => assert.equal(await runtimeHandlerOf(pod(), client), ''));
  it('is the handler of its class', async () => assert.equal(await runtimeHandlerOf(pod('sandboxed'), client), 'kata'));
  it('is the default of the runtime without an API server', async () =>
    assert.equal(await runtimeHandlerOf(pod('sandboxed'), undefined), ''));
  it('is not guessed for a class that is not there', () =>
    assert.rejects(runtimeHandlerOf(pod('gone'), client), /runtimeclasses.node.k8s.io "gone" not found/));
});

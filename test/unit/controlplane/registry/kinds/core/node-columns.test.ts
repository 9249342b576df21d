/** Tests the columns of `kubectl get nodes -o wide`. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { KubeObject } from '../../../../../../api/meta/object.ts';
import { nodeColumns } from '../../../../../../controlplane/registry/kinds/core/columns.ts';

function cell(column: string, nodeInfo: object): unknown {
  const index = nodeColumns.columns.findIndex(({ name }) => name === column);
  const node = { metadata: { name: 'n' }, status: { nodeInfo } } as unknown as KubeObject;
  return nodeColumns.cells(node)[index];
}

test('the kernel version is shown with the architecture of the node', () => {
  assert.equal(cell('Kernel-Version', { kernelVersion: '6.1.0-18', architecture: 'amd64' }), '6.1.0-18 (amd64)');
  assert.equal(cell('Kernel-Version', { kernelVersion: '6.1.0-18', architecture: '' }), '6.1.0-18');
  assert.equal(cell('Kernel-Version', {}), '<unknown>');
});

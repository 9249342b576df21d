import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { fieldValue } from '../../../../../agent/runtime/kuberuntime/downward-api.ts';

it('labels and annotations are sorted, one a line, with values quoted as in Go', () => {
  const annotations = {
    b: 'two\nlines\t"quoted" back\\slash',
    a: 'é 日本 😀',
    control: '\u0001\u0007\u007f',
    invisible: '\u00a0\u200b\u{e0001}',
  };
  const pod = {
    metadata: { name: 'p', namespace: 'n', uid: 'u', annotations },
    spec: { containers: [] },
  } as unknown as Pod;
  assert.equal(
    fieldValue(pod, 'metadata.annotations', { hostIps: [] }),
    [
      'a="é 日本 😀"',
      'b="two\\nlines\\t\\"quoted\\" back\\\\slash"',
      'control="\\x01\\a\\x7f"',
      'invisible="\\u00a0\\u200b\\U000e0001"',
    ].join('\n'),
  );
});

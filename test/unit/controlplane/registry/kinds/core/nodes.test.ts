/** Tests the rules of nodes by the responses to writes. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { openFixture, type Fixture } from '../../registry-fixture.ts';

const AVOID = 'scheduler.alpha.kubernetes.io/preferAvoidPods';
let fixture: Fixture;
before(async () => {
  fixture = await openFixture();
});
after(() => fixture.close());

const node = (name: string, avoid: string): object => ({ metadata: { name, annotations: { [AVOID]: avoid } } });

test('the annotation that avoids pods must read', async () => {
  const entry = (controller: boolean): object => ({ podSignature: { podController: { controller } } });
  const cases: readonly (readonly [string, RegExp])[] = [
    ['junk', /AvoidPods: Invalid value: ".*": invalid character 'j' looking for beginning of value/],
    ['{', /AvoidPods: Invalid value: ".*": unexpected end of JSON input/],
    [JSON.stringify({ preferAvoidPods: [{}] }), /preferAvoidPods\[0\]\.PodSignature: Required value/],
    [
      JSON.stringify({ preferAvoidPods: [entry(false)] }),
      /PodController\.Controller: Invalid value: false: must point/,
    ],
  ];
  for (const [text, wanted] of cases)
    await assert.rejects(fixture.create('v1/nodes', node('n', text), ''), { code: 422, message: wanted }, text);
  await fixture.create('v1/nodes', node('right', JSON.stringify({ preferAvoidPods: [entry(true)] })), '');
  await fixture.create('v1/nodes', node('null', 'null'), '');
});

/** Tests lists as indented JSON and as YAML, written item by item. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { stringifyJson } from '../../../../api/codec/json.ts';
import { stringifyYaml, yamlParts } from '../../../../api/codec/yaml.ts';
import { formattedChunks } from '../../../../controlplane/server/formatted-list.ts';

const ITEMS = [
  { kind: 'A', apiVersion: 'v1', metadata: { name: 'a' }, data: { '': '', x: 'one\ntwo\n\n  three', y: [] } },
  { kind: 'A', apiVersion: 'v1', metadata: { name: 'b', list: [[1, [{}]], { c: null }] } },
  {},
  { big: 9223372036854775807n, text: '[]' },
];

for (const member of ['items', 'rows'] as const) {
  for (const items of [[], ITEMS.slice(0, 1), ITEMS]) {
    describe(`a list of ${items.length} ${member}`, () => {
      const envelope = { kind: 'AList', apiVersion: 'v1', metadata: { resourceVersion: '7', text: '[]' } };
      const kept = items.map((item) => Object.fromEntries(Object.entries(item).filter(([key]) => key !== 'kind')));
      const list = {
        frame: stringifyJson({ ...envelope, [member]: [] }),
        member,
        items: items.map((item) => Buffer.from(stringifyJson(item))),
        omitted: ['kind'],
      };
      const whole = { ...envelope, [member]: kept };
      const joined = (chunks: Iterable<Buffer>): string => Buffer.concat([...chunks]).toString();

      it('is indented as at once', () => {
        for (const bytes of [1, 1 << 20]) assert.equal(joined(formattedChunks(list, bytes)), stringifyJson(whole, 2));
      });

      it('is the same YAML as at once', () => {
        for (const bytes of [1, 1 << 20])
          assert.equal(joined(formattedChunks(list, bytes, yamlParts)), stringifyYaml(whole));
      });
    });
  }
}

it('the items of a list are read as far as its text is taken', () => {
  let read = 0;
  const items = (function* (): Generator<Buffer> {
    for (;;) {
      read += 1;
      yield Buffer.from(`{"data":"${'x'.repeat(1000)}"}`);
    }
  })();
  const chunks = formattedChunks({ frame: '{"items":[]}', member: 'items', items, omitted: [] }, 10_000);
  chunks.next();
  assert.ok(read <= 11, String(read));
  chunks.next();
  assert.ok(read <= 21, String(read));
});

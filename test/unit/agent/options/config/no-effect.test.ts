/** Each option without effect logs the reason once, whether it is set by a flag or by a field of the file. */
import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { effectiveOptions } from '../../../../../agent/options/config/effective-options.ts';
import { writeField } from '../../../../../agent/options/config/field-value.ts';
import type { AnyOption } from '../../../../../agent/options/option.ts';
import { agentFlags, agentOptions } from '../../../../../agent/options/agent-options.ts';
import { type FlagType, type FlagTypes, parseFlags } from '../../../../../api/component/flags.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

let directory = '';
before(async () => {
  directory = temporaryFolder();
});

/** Returns a value other than the default, as text of the command line and as a value. */
function another(row: AnyOption): readonly [text: string, value: FlagTypes[FlagType]] {
  switch (row.type) {
    case 'boolean':
      return [String(!row.default), !row.default];
    case 'integer':
      return [String(row.default + 1), row.default + 1];
    case 'number':
      return ['0.5', 0.5];
    case 'duration':
      return ['7s', 7000];
    case 'list':
    case 'array':
      return ['7', ['7']];
    case 'map':
      return ['a=7', { a: '7' }];
    case 'string': {
      const choice = row.choices?.find((name) => name !== row.default && name !== '') ?? '7';
      return [choice, choice];
    }
    default:
      return row satisfies never;
  }
}

const silent = Object.values<AnyOption>(agentOptions).filter(({ noEffect }) => noEffect !== undefined);

for (const row of silent.filter(({ name }) => name !== ''))
  test(`--${row.name} is logged once with the reason why it has no effect`, () => {
    const flag = `--${row.name}=${another(row)[0]}`;
    const warnings = parseFlags(agentFlags, [flag, flag]).warnings.filter((text) => text.includes('has no effect'));
    assert.deepEqual(warnings, [`Flag --${row.name} has no effect: ${row.noEffect}`]);
  });

for (const row of silent) {
  const path = row.config?.path;
  if (path === undefined) continue;
  test(`${path} in the file is logged once with the reason why it has no effect`, async () => {
    const file = join(directory, `${path}.json`);
    const fields = path
      .split('.')
      .reduceRight<unknown>((inner, name) => ({ [name]: inner }), writeField(row, another(row)[1]));
    const document = {
      apiVersion: 'kubelet.config.k8s.io/v1beta1',
      kind: 'KubeletConfiguration',
      authentication: { webhook: { enabled: false } },
      authorization: { mode: 'AlwaysAllow' },
      ...(fields as object),
    };
    await writeFile(file, JSON.stringify(document));
    const { warnings } = await effectiveOptions({ values: { config: file }, given: new Set(['config']) });
    assert.deepEqual(warnings, [`${file}: the field ${path} has no effect: ${row.noEffect}`]);
  });
}

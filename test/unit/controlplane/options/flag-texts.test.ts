/** What `--help` and the page of the flags show is written for a reader who knows Kubernetes and has never seen this code. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { AnyFlag } from '../../../../api/component/flags.ts';
import { controlPlaneFlags } from '../../../../controlplane/options/controlplane-options.ts';

const flags = Object.values<AnyFlag>(controlPlaneFlags);

/** Words that operators do not search for, with those that they do. */
const PRIVATE_WORDS: readonly (readonly [RegExp, string])[] = [
  [/\bauthorit(y|ies)\b/i, 'CA'],
  [/\blooked? (at|back)\b/i, 'check, evaluate'],
  [/\bworked on\b/i, 'reconciled'],
  [/\bwanted|wished\b/i, 'desired'],
  [/\bmade\b/i, 'created'],
  [/\ba second\b/i, 'per second'],
];

describe('the help of the flags of the control plane', () => {
  it('is whole sentences', () => {
    const wrong = flags
      // A text may begin with a value of the flag: `json: one event per line`.
      .filter(({ help }) => !/^([A-Z]|[a-z-]+: )/.test(help) || !help.endsWith('.'))
      .map(({ name, help }) => `--${name}: ${help}`);
    assert.deepEqual(wrong, []);
  });

  it("uses Kubernetes' own words", () => {
    const wrong = flags.flatMap(({ name, help }) =>
      PRIVATE_WORDS.filter(([word]) => word.test(help)).map(([, instead]) => `--${name}: ${help} (${instead})`),
    );
    assert.deepEqual(wrong, []);
  });
});

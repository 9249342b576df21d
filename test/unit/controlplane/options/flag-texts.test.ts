/** What `--help` and the page of the flags show is written for a reader who knows Kubernetes and has never seen this code. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { admissionFlags } from '../../../../controlplane/options/admission.ts';
import { apiFlags } from '../../../../controlplane/options/api.ts';
import { auditFlags } from '../../../../controlplane/options/audit.ts';
import { authenticationFlags } from '../../../../controlplane/options/authentication.ts';
import { authorizationFlags } from '../../../../controlplane/options/authorization.ts';
import { controllersFlags } from '../../../../controlplane/options/controllers.ts';
import { leaderElectionFlags } from '../../../../controlplane/options/leader-election.ts';
import { limitsFlags } from '../../../../controlplane/options/limits.ts';
import { logsFlags } from '../../../../controlplane/options/logs.ts';
import { partsFlags } from '../../../../controlplane/options/parts.ts';
import { servingFlags } from '../../../../controlplane/options/serving.ts';
import { storageFlags } from '../../../../controlplane/options/storage.ts';

const TABLES: Readonly<Record<string, Readonly<Record<string, { readonly name: string; readonly help: string }>>>> = {
  admissionFlags,
  apiFlags,
  auditFlags,
  authenticationFlags,
  authorizationFlags,
  controllersFlags,
  leaderElectionFlags,
  limitsFlags,
  logsFlags,
  partsFlags,
  servingFlags,
  storageFlags,
};

/** Words that operators do not search for, with those that they do. */
const PRIVATE_WORDS: readonly (readonly [RegExp, string])[] = [
  [/\bauthorit(y|ies)\b/i, 'CA'],
  [/\blooked? (at|back)\b/i, 'check, evaluate'],
  [/\bworked on\b/i, 'reconciled'],
  [/\bwanted|wished\b/i, 'desired'],
  [/\bmade\b/i, 'created'],
  [/\ba second\b/i, 'per second'],
];

for (const [table, flags] of Object.entries(TABLES))
  describe(table, () => {
    it('has help texts of whole sentences', () => {
      const wrong = Object.values(flags)
        // A text may begin with a value of the flag: `json: one event per line`.
        .filter(({ help }) => !/^([A-Z]|[a-z-]+: )/.test(help) || !help.endsWith('.'))
        .map(({ name, help }) => `--${name}: ${help}`);
      assert.deepEqual(wrong, []);
    });

    it("uses Kubernetes' own words", () => {
      const wrong = Object.values(flags).flatMap(({ name, help }) =>
        PRIVATE_WORDS.filter(([word]) => word.test(help)).map(([, instead]) => `--${name}: ${help} (${instead})`),
      );
      assert.deepEqual(wrong, []);
    });
  });

/** Creates the error of an apply request that changes fields of other managers. */
import { pathTexts } from '../../api/codec/structured-merge/fields-v1.ts';
import type { FieldSet } from '../../api/codec/structured-merge/field-set.ts';
import { quote } from '../../api/meta/field-error.ts';
import { newStatusError, type StatusError } from '../../api/meta/status-error.ts';
import { type Owner, ownerKey } from './managed-fields-entries.ts';

/** A manager with whose fields an apply request conflicts. */
export interface OwnerConflict {
  readonly owner: Owner;
  /** The fields that the manager owns and the applier would change. */
  readonly fields: FieldSet;
}

function ownerText(owner: Owner, shownVersion: string | undefined): string {
  const below = owner.subresource === '' ? '' : ` with subresource ${quote(owner.subresource)}`;
  const version = owner.operation === 'Update' ? ` using ${shownVersion ?? owner.apiVersion}` : '';
  return quote(owner.manager) + below + version;
}

/**
 * Builds the error of an apply request, with a cause for each field of another manager. `shownVersion` replaces the versions
 * of the owners.
 */
export function newApplyConflict(conflicts: readonly OwnerConflict[], shownVersion?: string): StatusError {
  const byOwner = conflicts
    .map(({ owner, fields }) => ({
      key: ownerKey(owner),
      text: ownerText(owner, shownVersion),
      paths: pathTexts(fields),
    }))
    .sort((a, b) => (a.key < b.key ? -1 : 1));
  const causes = byOwner.flatMap(({ text, paths }) =>
    paths.map((field) => ({ reason: 'FieldManagerConflict', message: `conflict with ${text}`, field })),
  );
  const [only] = causes;
  const summary =
    causes.length === 1 && only !== undefined
      ? `Apply failed with 1 conflict: ${only.message}: ${only.field}`
      : `Apply failed with ${causes.length} conflicts: ${byOwner
          .flatMap(({ text, paths }) => [`conflicts with ${text}:`, ...paths.map((path) => `- ${path}`)])
          .join('\n')}`;
  return newStatusError(409, 'Conflict', summary, { details: { causes } });
}

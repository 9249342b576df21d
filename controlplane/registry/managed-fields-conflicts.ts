/** Creates the error of an apply request that changes fields of other managers. */
import { pathTexts } from '../../api/codec/structured-merge/fields-v1.ts';
import { countPaths, type FieldSet } from '../../api/codec/structured-merge/field-set.ts';
import { quote } from '../../api/meta/field-error.ts';
import { newStatusError, type StatusError } from '../../api/meta/status-error.ts';
import type { ShownOwnership } from './field-management.ts';
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
 * The size of the causes of one error from which on conflicts are only counted: an object has hundreds of thousands, if many
 * managers own each of its fields.
 */
const MAX_SHOWN_CHARS = 256 * 1024;

/**
 * Builds the error of an apply request. Each conflict that it shows has a cause. `shownAs` replaces the versions of the owners
 * that do not apply, and the paths of the fields.
 */
export function newApplyConflict(conflicts: readonly OwnerConflict[], shownAs?: ShownOwnership): StatusError {
  const total = conflicts.reduce((sum, { fields }) => sum + countPaths(fields), 0);
  const byOwner = conflicts
    .map(({ owner, fields }) => ({ key: ownerKey(owner), text: ownerText(owner, shownAs?.version), fields }))
    .sort((a, b) => (a.key < b.key ? -1 : 1));
  const causes: { reason: string; message: string; field: string }[] = [];
  const lines: string[] = [];
  let chars = 0;
  for (const { text, fields } of byOwner) {
    if (chars > MAX_SHOWN_CHARS) break;
    const message = `conflict with ${text}`;
    lines.push(`conflicts with ${text}:`);
    for (const path of pathTexts(fields)) {
      const field = shownAs?.field ?? path;
      if (chars > MAX_SHOWN_CHARS) break;
      chars += message.length + field.length;
      causes.push({ reason: 'FieldManagerConflict', message, field });
      lines.push(`- ${field}`);
    }
  }
  if (causes.length < total) lines.push(`and ${total - causes.length} more`);
  const [only] = causes;
  const summary =
    total === 1 && only !== undefined
      ? `Apply failed with 1 conflict: ${only.message}: ${only.field}`
      : `Apply failed with ${total} conflicts: ${lines.join('\n')}`;
  return newStatusError(409, 'Conflict', summary, { details: { causes } });
}

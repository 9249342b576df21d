/** Implements the field management of tests of the registry alone: it tracks no ownership, and refuses apply. */
import { newUnsupportedMediaType } from '../../api/meta/status-error.ts';
import type { FieldManagement } from '../../controlplane/registry/field-management.ts';

const refuseApply = (): never => {
  throw newUnsupportedMediaType('apply needs managed fields');
};

/** Returns objects without managed fields. */
export const noFieldManagement: FieldManagement = {
  update: (_live, object) => object,
  updateInTurns: (_live, object) => object,
  apply: refuseApply,
  applyInTurns: refuseApply,
};

/** Roles and bindings: their names may hold colons. */
import { nameIsPathSegment } from '../../../api/meta/names.ts';
import { kindRow, type Strategy } from '../strategy.ts';

const GROUP = 'rbac.authorization.k8s.io';
const byPath: Strategy = { nameRule: nameIsPathSegment, allowCreateOnUpdate: true };

export const rbacKinds = ['roles', 'rolebindings', 'clusterroles', 'clusterrolebindings'].map((resource) =>
  kindRow(GROUP, resource, byPath),
);

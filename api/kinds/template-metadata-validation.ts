/** Validates the metadata of the templates of claims, which have labels and annotations only. */
import { forbidden, type FieldError } from '../meta/field-error.ts';
import { validateLabels } from '../meta/selector.ts';
import { validateAnnotations } from '../meta/validation.ts';

/** Fields that a template cannot set, in kube-apiserver's order, with its name in errors where that differs. */
const REFUSED: readonly (readonly [field: string, shown?: string])[] = [
  ['name'],
  ['generateName'],
  ['namespace'],
  ['selfLink'],
  ['uid', 'uID'],
  ['resourceVersion'],
  ['generation'],
  ['creationTimestamp'],
  ['deletionTimestamp'],
  ['deletionGracePeriodSeconds'],
  ['ownerReferences'],
  ['finalizers'],
  ['managedFields'],
];

/** Fields for which kube-apiserver distinguishes zero from an absent value. */
const POINTERS = new Set(['deletionGracePeriodSeconds']);

/** Validates labels and annotations, and refuses all other fields of the metadata. */
export function templateMetadataErrors(metadata: object | undefined, at: string): FieldError[] {
  const fields = (metadata ?? {}) as Readonly<Record<string, unknown>>;
  const isSet = (field: string): boolean => {
    const value = fields[field];
    if (value === undefined || value === null) return false;
    return (value !== '' && value !== 0) || POINTERS.has(field);
  };
  return [
    ...validateAnnotations(fields['annotations'] as Record<string, string> | undefined, `${at}.annotations`),
    ...validateLabels(fields['labels'] as Record<string, string> | undefined, `${at}.labels`),
    ...REFUSED.flatMap(([field, shown = field]) =>
      isSet(field) ? [forbidden(`${at}.${shown}`, 'cannot be set')] : [],
    ),
  ];
}

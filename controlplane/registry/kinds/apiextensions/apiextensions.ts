/**
 * Defines the strategy of CustomResourceDefinitions: defaults, allowed changes, and the deletion together with their objects.
 */
import { quote } from '../../../../api/meta/field-error.ts';
import { jsonEqual } from '../../../../api/meta/json-equality.ts';
import { CLEANUP_FINALIZER, type Definition, setCondition } from './definition.ts';
import {
  definitionNameRule,
  validateDefinition,
  validateDefinitionStatus,
  validateDefinitionUpdate,
} from './definition-validation.ts';
import { unknownFormats } from '../../schemas/formats.ts';
import { kindRow, type Strategy, type UpdateStrategy } from '../../strategy.ts';

const DEFAULT_PORT = 443;

function applyDefaults(definition: Definition): void {
  const { spec } = definition;
  // A definition without versions is refused.
  spec.versions ??= [];
  const { names } = spec;
  if ((names.singular ?? '') === '') names.singular = names.kind.toLowerCase();
  if ((names.listKind ?? '') === '' && names.kind !== '') names.listKind = `${names.kind}List`;
  spec.conversion ??= { strategy: 'None' };
  const { webhook } = spec.conversion;
  // In kube-apiserver's internal type, the members of the webhook belong to the conversion, so that an empty webhook is lost.
  if (webhook?.clientConfig === undefined && (webhook?.conversionReviewVersions ?? []).length === 0) {
    delete spec.conversion.webhook;
  }
  const service = webhook?.clientConfig?.service;
  if (service !== undefined) service.port ??= DEFAULT_PORT;
}

/** Adds the storage version to `status.storedVersions`, which lists every version in which objects may be stored. */
function rememberStoredVersion(definition: Definition): void {
  const stored = definition.spec.versions.find((version) => version.storage)?.name;
  if (stored === undefined) return;
  const status = (definition.status ??= {});
  const versions = (status.storedVersions ??= []);
  if (!versions.includes(stored)) versions.push(stored);
}

const formatsOf = ({ spec }: Definition): Set<string> =>
  new Set(spec.versions.flatMap(({ schema }) => unknownFormats(schema?.openAPIV3Schema ?? {})));

/** Returns warnings about formats that validation does not know, on an update only of new ones. */
function formatWarnings(definition: Definition, old?: Definition): string[] {
  const oldFormats = old === undefined ? new Set<string>() : formatsOf(old);
  const formats = [...formatsOf(definition).difference(oldFormats)];
  return formats.sort().map((format) => `unrecognized format ${quote(format)}`);
}

/** The strategy of the subresource `status`. It keeps the spec. Metadata may change, as in kube-apiserver. */
const status: UpdateStrategy<Definition> = {
  prepareForUpdate(definition, old) {
    definition.spec = old.spec;
    // The current storage version is always a stored version.
    if ((definition.status?.storedVersions ?? []).length === 0) rememberStoredVersion(definition);
  },
  validateUpdate: validateDefinitionStatus,
  resetFields: [['spec']],
};

const definitions: Strategy<Definition> = {
  applyDefaults,
  managesGeneration: true,
  requiresResourceVersion: true,
  prepareForCreate(definition) {
    definition.status = {};
    rememberStoredVersion(definition);
  },
  nameRuleOf: definitionNameRule,
  validateCreate: validateDefinition,
  prepareForUpdate(definition, old) {
    if (old.status === undefined) delete definition.status;
    else definition.status = structuredClone(old.status);
    rememberStoredVersion(definition);
  },
  changesGeneration: (definition, old) => !jsonEqual(definition.spec, old.spec),
  validateUpdate: validateDefinitionUpdate,
  warningsOnCreate: (definition) => formatWarnings(definition),
  warningsOnUpdate: (definition, old) => formatWarnings(definition, old),
  resetFields: [['status']],
  markTerminating(definition) {
    const finalizers = (definition.metadata.finalizers ??= []);
    if (!finalizers.includes(CLEANUP_FINALIZER)) finalizers.push(CLEANUP_FINALIZER);
    const condition = {
      type: 'Terminating',
      status: 'True',
      reason: 'InstanceDeletionPending',
      message: 'CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon',
    };
    setCondition((definition.status ??= {}), condition, Date.parse(definition.metadata.deletionTimestamp ?? ''));
  },
  status,
};

export const apiextensionsKinds = [kindRow('apiextensions.k8s.io', 'customresourcedefinitions', definitions)];

/** Defines the strategies of namespaces, config maps, secrets, service accounts and pod templates. */
import type { V1ConfigMap, V1Namespace, V1PodTemplate, V1Secret, V1ServiceAccount } from '@kubernetes/client-node';
import { JsonSyntaxError, parseJson } from '../../../../api/codec/json.ts';
import { dropDisabledPodFields } from '../../../../api/kinds/disabled-fields.ts';
import { applyPodTemplateDefaults } from '../../../../api/kinds/pod-defaults.ts';
import { podTemplateErrors } from '../../../../api/kinds/pod-validation.ts';
import type { PodTemplate } from '../../../../api/kinds/pod-types.ts';
import { podWarnings } from '../../../../api/kinds/pod-warnings.ts';
import type { Kind } from '../../../../api/kinds/wire.ts';
import { jsonEqual } from '../../../../api/meta/json-equality.ts';
import { configKeyErrors, nameIsLabel, qualifiedNameErrors } from '../../../../api/meta/names.ts';
import type { KubeObject } from '../../../../api/meta/object.ts';
import { readPem } from '../../../../api/pki/pem.ts';
import {
  configMapColumns,
  namespaceColumns,
  podTemplateColumns,
  secretColumns,
  serviceAccountColumns,
} from './columns.ts';
import { restore } from '../../generic-strategy.ts';
import { kindRow, type Strategy } from '../../strategy.ts';
import { immutable } from '../field-rules.ts';
import { type FieldError, forbidden, invalid, required, tooLong } from '../../../../api/meta/field-error.ts';
import { equalFields } from '../../../../api/schema/semantic-equality.ts';
import { ENFORCE_MOUNTABLE_ANNOTATION } from '../../../../api/meta/well-known-labels.ts';
import { invalidFor } from '../../../../api/kinds/validation-rules.ts';

const MAX_DATA_BYTES = 1024 * 1024;
const FROZEN = 'field is immutable when `immutable` is set';

type Namespace = Kind<Pick<V1Namespace, 'spec' | 'status'>>;

const NAME_LABEL = 'kubernetes.io/metadata.name';

function setNameLabel(object: KubeObject): void {
  const { name = '' } = object.metadata;
  if (name !== '') object.metadata.labels = { ...object.metadata.labels, [NAME_LABEL]: name };
}

const STANDARD_FINALIZERS = ['kubernetes', 'orphan', 'foregroundDeletion'];

/**
 * Validates finalizers. As in kube-apiserver, errors have the path of the list on create, and the path of the item on finalize.
 */
function finalizerErrors(object: Namespace, at: 'list' | 'item'): FieldError[] {
  return (object.spec?.finalizers ?? []).flatMap((name, index) => {
    const field = at === 'list' ? 'spec.finalizers' : `spec.finalizers[${index}]`;
    const errors = invalidFor(field, name, qualifiedNameErrors(name));
    if (!name.includes('/') && !STANDARD_FINALIZERS.includes(name)) {
      errors.push(invalid(field, name, 'name is neither a standard finalizer name nor is it fully qualified'));
    }
    return errors;
  });
}

const namespaces: Strategy<Namespace> = {
  metadataChecks: ['whole', 'update'],
  nameRule: nameIsLabel,
  applyDefaults: setNameLabel,
  prepareForCreate(object) {
    setNameLabel(object);
    object.status = { phase: 'Active' };
    const finalizers = object.spec?.finalizers ?? [];
    object.spec = { finalizers: finalizers.includes('kubernetes') ? finalizers : [...finalizers, 'kubernetes'] };
  },
  prepareForUpdate(object, old) {
    restore(object, old, 'spec');
    restore(object, old, 'status');
  },
  validateCreate: (object) => finalizerErrors(object, 'list'),
  resetFields: [['status']],
  returnsDeleted: true,
  markTerminating(object) {
    object.status = { ...object.status, phase: 'Terminating' };
  },
  remainingFinalizers: (object) => (object.spec?.finalizers ?? []).length,
  selectableFields: { 'status.phase': (object) => object.status?.phase ?? '' },
  columns: namespaceColumns,
  status: {
    prepareForUpdate(object, old) {
      restore(object, old, 'spec');
      (object.status ??= {}).phase ??= 'Active';
    },
    validateUpdate(object) {
      const { phase = '' } = object.status ?? {};
      const isTerminating = object.metadata.deletionTimestamp !== undefined;
      if (!isTerminating && phase !== 'Active')
        return [invalid('status.Phase', phase, "may only be 'Active' if `deletionTimestamp` is empty")];
      if (isTerminating && phase !== 'Terminating')
        return [invalid('status.Phase', phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")];
      return [];
    },
    resetFields: [['spec']],
  },
  subresources: {
    finalize: {
      prepareForUpdate: (object, old) => restore(object, old, 'status'),
      validateUpdate: (object) => finalizerErrors(object, 'item'),
    },
  },
};

type ConfigMap = Kind<Pick<V1ConfigMap, 'data' | 'binaryData' | 'immutable'>>;

const base64Size = (text: string): number => Buffer.byteLength(text, 'base64');

function configMapErrors(object: ConfigMap): FieldError[] {
  const errors: FieldError[] = [];
  const { data = {}, binaryData = {} } = object;
  let size = 0;
  for (const [key, value] of Object.entries(data)) {
    errors.push(...invalidFor(`data[${key}]`, key, configKeyErrors(key)));
    if (Object.hasOwn(binaryData, key))
      errors.push(invalid(`data[${key}]`, key, 'duplicate of key present in binaryData'));
    size += Buffer.byteLength(value ?? '');
  }
  for (const [key, value] of Object.entries(binaryData)) {
    errors.push(...invalidFor(`binaryData[${key}]`, key, configKeyErrors(key)));
    size += base64Size(value ?? '');
  }
  // kube-apiserver reports this error without a path.
  if (size > MAX_DATA_BYTES) errors.push(tooLong('[]', MAX_DATA_BYTES));
  return errors;
}

function frozenErrors<Object extends { immutable?: boolean | undefined }>(
  object: Object,
  old: Object,
  fields: readonly (keyof Object & string)[],
): FieldError[] {
  if (old.immutable !== true) return [];
  const errors: FieldError[] = [];
  if (object.immutable !== true) errors.push(forbidden('immutable', FROZEN));
  for (const field of fields)
    if (!jsonEqual(object[field] ?? {}, old[field] ?? {})) errors.push(forbidden(field, FROZEN));
  return errors;
}

const configMaps: Strategy<ConfigMap> = {
  validateCreate: configMapErrors,
  validateUpdate: (object, old) => [...frozenErrors(object, old, ['data', 'binaryData']), ...configMapErrors(object)],
  columns: configMapColumns,
};

type Secret = Kind<Pick<V1Secret, 'data' | 'stringData' | 'type' | 'immutable'>>;

const ACCOUNT = 'kubernetes.io/service-account.name';

/** The keys that the data of a secret must have, if only with empty values, by the type of the secret. */
const REQUIRED_KEYS: ReadonlyMap<string, readonly string[]> = new Map(
  Object.entries({
    'kubernetes.io/tls': ['tls.crt', 'tls.key'],
  }),
);
/** The key of the data that must be a JSON object or `null`, by the type of the secret. */
const CONFIG_KEYS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    'kubernetes.io/dockercfg': '.dockercfg',
    'kubernetes.io/dockerconfigjson': '.dockerconfigjson',
  }),
);

function mergeStringData(object: Secret): void {
  const { stringData } = object;
  if (stringData === undefined) return;
  const encoded = Object.entries(stringData).map(([key, text]) => [key, Buffer.from(text ?? '').toString('base64')]);
  if (encoded.length > 0) object.data = { ...object.data, ...Object.fromEntries(encoded) };
  delete object.stringData;
}

function secretErrors(object: Secret): FieldError[] {
  const errors: FieldError[] = [];
  const { data = {}, type = '' } = object;
  let size = 0;
  for (const [key, value] of Object.entries(data)) {
    errors.push(...invalidFor(`data[${key}]`, key, configKeyErrors(key)));
    size += base64Size(value ?? '');
  }
  if (size > MAX_DATA_BYTES) errors.push(tooLong('data', MAX_DATA_BYTES));
  const missing = (key: string): boolean => (data[key] ?? undefined) === undefined;
  if (type === 'kubernetes.io/service-account-token') {
    if ((object.metadata.annotations?.[ACCOUNT] ?? '') === '')
      errors.push(required(`metadata.annotations[${ACCOUNT}]`));
  } else if (type === 'kubernetes.io/basic-auth') {
    if (missing('username') && missing('password')) errors.push(required('data[username]'), required('data[password]'));
  } else if (type === 'kubernetes.io/ssh-auth') {
    if ((data['ssh-privatekey'] ?? '') === '') errors.push(required('data[ssh-privatekey]'));
  }
  for (const key of REQUIRED_KEYS.get(type) ?? []) if (missing(key)) errors.push(required(`data[${key}]`));
  const config = CONFIG_KEYS.get(type);
  if (config !== undefined) {
    if (missing(config)) errors.push(required(`data[${config}]`));
    else errors.push(...jsonErrors(config, Buffer.from(data[config] ?? '', 'base64').toString()));
  }
  return errors;
}

/** What Go's errors call a JSON value, by its type in JavaScript. */
const GO_KINDS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    object: 'object',
    string: 'string',
    number: 'number',
    bigint: 'number',
    boolean: 'bool',
  }),
);

function jsonErrors(key: string, text: string): FieldError[] {
  const refuse = (why: string): FieldError[] => [invalid(`data[${key}]`, '<secret contents redacted>', why)];
  try {
    const { value } = parseJson(text);
    const kind = Array.isArray(value) ? 'array' : value === null ? 'object' : GO_KINDS.get(typeof value);
    return kind === 'object' || kind === undefined
      ? []
      : refuse(`json: cannot unmarshal ${kind} into Go value of type map[string]interface {}`);
  } catch (error) {
    if (!(error instanceof JsonSyntaxError)) throw error;
    return refuse(error.message);
  }
}

function tlsWarnings(object: Secret): string[] {
  if (object.type !== 'kubernetes.io/tls') return [];
  const certificate = Buffer.from(object.data?.['tls.crt'] ?? '', 'base64').toString();
  const key = Buffer.from(object.data?.['tls.key'] ?? '', 'base64').toString();
  if (readPem(certificate).length === 0) return ['tls: failed to find any PEM data in certificate input'];
  return readPem(key).length > 0 ? [] : ['tls: failed to find any PEM data in key input'];
}

const secrets: Strategy<Secret> = {
  applyDefaults(object) {
    mergeStringData(object);
    if ((object.type ?? '') === '') object.type = 'Opaque';
  },
  validateCreate: secretErrors,
  prepareForUpdate(object, old) {
    if ((object.type ?? '') === '' && old.type !== undefined) object.type = old.type;
  },
  validateUpdate: (object, old) => [
    ...immutable('type', object.type, old.type),
    ...frozenErrors(object, old, ['data']),
    ...secretErrors(object),
  ],
  warningsOnCreate: tlsWarnings,
  warningsOnUpdate: tlsWarnings,
  selectableFields: { type: (object) => object.type ?? '' },
  columns: secretColumns,
};

type ServiceAccount = Kind<Pick<V1ServiceAccount, 'secrets' | 'imagePullSecrets' | 'automountServiceAccountToken'>>;

/** Keeps only the names of references to secrets. */
function namesOnly(object: ServiceAccount): void {
  if (object.secrets !== undefined) {
    object.secrets = object.secrets.map(({ name }) => (name === undefined ? {} : { name }));
  }
}

function mountWarnings(object: ServiceAccount, old?: ServiceAccount): string[] {
  const value = object.metadata.annotations?.[ENFORCE_MOUNTABLE_ANNOTATION];
  if (value === undefined || old?.metadata.annotations?.[ENFORCE_MOUNTABLE_ANNOTATION] !== undefined) return [];
  return [
    `metadata.annotations[${ENFORCE_MOUNTABLE_ANNOTATION}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets`,
  ];
}

const serviceAccounts: Strategy<ServiceAccount> = {
  prepareForCreate: namesOnly,
  prepareForUpdate: namesOnly,
  warningsOnCreate: (object) => mountWarnings(object),
  warningsOnUpdate: mountWarnings,
  returnsDeleted: true,
  columns: serviceAccountColumns,
};

type StoredTemplate = Kind<Pick<V1PodTemplate, never>> & { template?: PodTemplate };

const podTemplates: Strategy<StoredTemplate> = {
  metadataChecks: ['update'],
  applyDefaults(object) {
    object.template ??= {};
    applyPodTemplateDefaults(object.template);
  },
  prepareForCreate: (object) => dropDisabledPodFields(object.template?.spec, undefined),
  prepareForUpdate: (object, old) => dropDisabledPodFields(object.template?.spec, old.template?.spec),
  managesGeneration: true,
  changesGeneration: (object, old) => !equalFields(object, old, 'template'),
  validateCreate: (object) => podTemplateErrors(object.template, 'template'),
  validateUpdate: (object) => podTemplateErrors(object.template, 'template'),
  warningsOnCreate: (object) => podWarnings(object.template?.metadata, object.template?.spec ?? {}, 'template'),
  warningsOnUpdate: (object, old) =>
    jsonEqual(object.template, old.template)
      ? []
      : podWarnings(object.template?.metadata, object.template?.spec ?? {}, 'template'),
  returnsDeleted: true,
  columns: podTemplateColumns,
};

export const coreObjectKinds = [
  kindRow('', 'namespaces', namespaces),
  kindRow('', 'configmaps', configMaps),
  kindRow('', 'secrets', secrets),
  kindRow('', 'serviceaccounts', serviceAccounts),
  kindRow('', 'podtemplates', podTemplates),
];

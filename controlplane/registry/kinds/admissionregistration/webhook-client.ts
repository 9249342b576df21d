/**
 * Validates the client configuration of a webhook. Admission and conversion webhooks share the rules. API services have only
 * the rule for the port.
 */
import { invalid, required, type FieldError } from '../../../../api/meta/field-error.ts';
import { GoUrlError, parseGoUrl } from '../../../../api/meta/go-url.ts';
import { dnsSubdomainErrors, portNumberErrors } from '../../../../api/meta/names.ts';

/** A webhook as a service of the cluster. */
export interface WebhookService {
  readonly namespace?: string | undefined;
  readonly name?: string | undefined;
  readonly path?: string | undefined;
  readonly port?: number | undefined;
}

/** `webhookClientErrors` requires exactly one of the two members. */
interface WebhookClientConfig {
  readonly url?: string | undefined;
  readonly service?: WebhookService | undefined;
}

const URL_FORM = '; desired format: https://host[/path]';

/** Splits `scheme://user@host/path?query#fragment` as Go parses it. */
const URL_PARTS = /^(?:([a-zA-Z][a-zA-Z0-9+.-]*):)?(?:\/\/(?:([^/?#]*)@)?([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?$/s;

function webhookUrlErrors(field: string, url: string): FieldError[] {
  try {
    parseGoUrl(url);
  } catch (error) {
    if (error instanceof GoUrlError) return [required(field, `url must be a valid URL: ${error.message}${URL_FORM}`)];
    throw error;
  }
  const [, scheme = '', user, host = '', , query = '', fragment = ''] = URL_PARTS.exec(url) ?? [];
  const errors: FieldError[] = [];
  if (scheme.toLowerCase() !== 'https')
    errors.push(invalid(field, scheme.toLowerCase(), `'https' is the only allowed URL scheme${URL_FORM}`));
  if (host === '') errors.push(invalid(field, host, `host must be specified${URL_FORM}`));
  if (user !== undefined) errors.push(invalid(field, user, 'user information is not permitted in the URL'));
  if (fragment !== '') errors.push(invalid(field, fragment, 'fragments are not permitted in the URL'));
  if (query !== '') errors.push(invalid(field, query, 'query parameters are not permitted in the URL'));
  return errors;
}

/**
 * Returns the errors of the service of a webhook. kube-apiserver confuses the fields: it reports a missing name as a missing
 * namespace, and the reverse.
 */
function webhookServiceErrors(field: string, service: WebhookService): FieldError[] {
  const { namespace = '', name = '', path = '' } = service;
  const errors: FieldError[] = [];
  if (namespace === '') errors.push(required(`${field}.name`));
  if (name === '') errors.push(required(`${field}.namespace`));
  return [...errors, ...servicePortErrors(field, service), ...pathErrors(`${field}.path`, path)];
}

/** Validates the port of a service. An absent port is 0, which is invalid. */
export function servicePortErrors(field: string, { port = 0 }: WebhookService): FieldError[] {
  const errors = portNumberErrors(port);
  return errors.length === 0 ? [] : [invalid(`${field}.port`, port, `port is not valid: ${errors.join(',')}`)];
}

function pathErrors(field: string, path: string): FieldError[] {
  if (path === '' || path === '/') return [];
  if (path === '//') return [invalid(field, path, 'segment[0] may not be empty')];
  const errors = path.startsWith('/') ? [] : [invalid(field, path, "must start with a '/'")];
  const steps = path.slice(1).replace(/\/$/, '').split('/');
  for (const [index, step] of steps.entries()) {
    if (step === '') errors.push(invalid(field, path, `segment[${index}] may not be empty`));
    else for (const text of dnsSubdomainErrors(step)) errors.push(invalid(field, path, `segment[${index}]: ${text}`));
  }
  return errors;
}

/** Requires exactly one of `url` and `service`. */
export function webhookClientErrors(field: string, { url, service }: WebhookClientConfig): FieldError[] {
  if ((url === undefined) === (service === undefined))
    return [required(field, 'exactly one of url or service is required')];
  if (url !== undefined) return webhookUrlErrors(`${field}.url`, url);
  return service === undefined ? [] : webhookServiceErrors(`${field}.service`, service);
}

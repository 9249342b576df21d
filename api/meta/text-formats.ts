/** Checks the formats of text that both schemas and CEL have, as the `strfmt` library of kube-openapi does. */

const TIME = /^(\d\d):(\d\d):(\d\d)(?:.\d+)?(?:z|[+-]\d\d:\d\d)$/;

/** Returns the pattern of UUIDs whose third and fourth groups begin as given. The dashes can be left out. */
export const uuidPattern = (version: string, variant = '[0-9a-f]'): RegExp =>
  new RegExp(`^[0-9a-f]{8}-?[0-9a-f]{4}-?${version}[0-9a-f]{3}-?${variant}[0-9a-f]{3}-?[0-9a-f]{12}$`, 'i');

/** Whether the text is base64 with its padding. The empty text is not. */
export const isBase64 = (text: string): boolean =>
  /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$/.test(text);

/** Whether the text is a date and a time. What follows a second `T` is not read. */
export function isDateTime(text: string): boolean {
  const [date = '', time = ''] = text.toLowerCase().split('t');
  const [, hour = '', minute = '', second = ''] = TIME.exec(time) ?? [];
  return isDate(date) && hour !== '' && hour <= '23' && minute <= '59' && second <= '59';
}

/** Whether the text is a full date of RFC 3339 that exists. */
export function isDate(text: string): boolean {
  if (!/^\d{4}-\d{2}-\d{2}$/.test(text)) return false;
  const time = Date.parse(`${text}T00:00:00Z`);
  return !Number.isNaN(time) && new Date(time).toISOString().startsWith(text);
}

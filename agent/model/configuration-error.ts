import { PlainError } from '../../api/component/plain-error.ts';

/** The error of invalid options. The message has one line for each mistake, and the agent does not start. */
export class ConfigurationError extends PlainError {
  override readonly name = 'ConfigurationError';
}

import { PlainError } from '../../api/component/plain-error.ts';

/** Options that cannot be: one line, or one line a mistake; the agent does not start. */
export class ConfigurationError extends PlainError {
  override readonly name = 'ConfigurationError';
}

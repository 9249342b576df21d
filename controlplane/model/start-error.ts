import { PlainError } from '../../api/component/plain-error.ts';

/** The error of a control plane that cannot start with these flags or on this host. */
export class StartError extends PlainError {
  override readonly name = 'StartError';
}

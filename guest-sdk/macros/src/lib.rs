//! The attribute `#[handler]`: it exports a function as the component's one entry point and embeds the handler's name and
//! version. It never changes the function itself, which stays callable from native tests.

use proc_macro::TokenStream;
use proc_macro2::{Literal, TokenStream as Tokens};
use quote::quote;
use syn::{FnArg, ItemFn, LitStr, parse_macro_input, spanned::Spanned};

/// Makes `fn handle(job: Job<T>) -> Result<Success, Failure>` the handler of this component.
///
/// The handler's name and version are those of its package; `#[handler(name = "x")]` overrides the name. Both are kept in
/// a custom section, `leasehold:handler`, from which the host reads them. Natively nothing is exported.
#[proc_macro_attribute]
pub fn handler(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let mut name: Option<LitStr> = None;
    let arguments = syn::meta::parser(|meta| {
        if !meta.path.is_ident("name") {
            return Err(meta.error("the one argument is `name = \"…\"`"));
        }
        name = Some(meta.value()?.parse()?);
        Ok(())
    });
    parse_macro_input!(attribute with arguments);
    let function = parse_macro_input!(item as ItemFn);
    expand(name.as_ref(), &function).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// The function, and beside it what a component has to export.
fn expand(name: Option<&LitStr>, function: &ItemFn) -> syn::Result<Tokens> {
    check_signature(function)?;
    let identity = identity(name)?;
    let length = identity.len();
    let bytes = Literal::byte_string(identity.as_bytes());
    let entry = &function.sig.ident;
    let inputs = function.sig.inputs.iter().map(|input| match input {
        FnArg::Typed(typed) => (*typed.ty).clone(),
        FnArg::Receiver(receiver) => (*receiver.ty).clone(),
    });
    Ok(quote! {
        // A handler's signature is given, whether or not this one makes use of all of it.
        #[allow(clippy::unnecessary_wraps, clippy::needless_pass_by_value)]
        #function

        // Natively too, the function's type is checked and the function counts as used.
        #[cfg(not(target_arch = "wasm32"))]
        const _: fn(#(#inputs),*) -> ::core::result::Result<::leasehold_guest::Success, ::leasehold_guest::Failure> =
            #entry;

        // Exporting a symbol and placing a static into a section are `unsafe` by the language's rules: two symbols of one
        // name would clash. A component has one handler, so there is nothing to clash with.
        #[cfg(target_arch = "wasm32")]
        #[allow(unsafe_code, missing_docs, clippy::all, clippy::pedantic)]
        mod __leasehold_handler {
            struct Exported;

            impl ::leasehold_guest::bindings::Guest for Exported {
                fn handle(
                    job: ::leasehold_guest::bindings::Job,
                ) -> ::core::result::Result<
                    ::leasehold_guest::bindings::Success,
                    ::leasehold_guest::bindings::Failure,
                > {
                    ::leasehold_guest::component::run(super::#entry, job)
                }
            }

            ::leasehold_guest::bindings::export!(Exported with_types_in ::leasehold_guest::bindings);

            #[used]
            #[unsafe(link_section = "leasehold:handler")]
            static IDENTITY: [u8; #length] = *#bytes;
        }
    })
}

/// Refuses what could not be called as a handler, at the place where it is written.
fn check_signature(function: &ItemFn) -> syn::Result<()> {
    let signature = &function.sig;
    let wrong = if signature.asyncness.is_some() {
        "a handler is not async: the host runs each attempt on its own"
    } else if !signature.generics.params.is_empty() {
        "a handler has no generic parameters"
    } else if signature.inputs.len() != 1 {
        "a handler takes one argument, `job: Job<T>`"
    } else {
        return Ok(());
    };
    Err(syn::Error::new(signature.span(), wrong))
}

/// The JSON text of the custom section.
fn identity(name: Option<&LitStr>) -> syn::Result<String> {
    let span = name.map_or_else(proc_macro2::Span::call_site, LitStr::span);
    let package = |variable: &str| {
        std::env::var(variable).map_err(|_| syn::Error::new(span, format!("{variable} is not set; build with cargo")))
    };
    let name = name.map_or_else(|| package("CARGO_PKG_NAME"), |literal| Ok(literal.value()))?;
    let plain = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    if name.is_empty() || !name.chars().all(plain) {
        return Err(syn::Error::new(span, "a handler's name consists of letters, digits, `-`, `_` and `.`"));
    }
    // Neither a name of these characters nor a semantic version needs escaping in JSON.
    Ok(format!(r#"{{"name":"{name}","version":"{}"}}"#, package("CARGO_PKG_VERSION")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse_quote;

    fn refusal(function: &ItemFn) -> String {
        expand(None, function).expect_err("the function must be refused").to_string()
    }

    #[test]
    fn a_function_that_is_no_handler_is_refused_with_its_reason() {
        assert!(
            refusal(&parse_quote! { async fn handle(job: Job<Raw>) -> Result<Success, Failure> {} }).contains("async")
        );
        assert!(
            refusal(&parse_quote! { fn handle<T>(job: Job<T>) -> Result<Success, Failure> {} }).contains("generic")
        );
        assert!(refusal(&parse_quote! { fn handle() -> Result<Success, Failure> {} }).contains("one argument"));
    }

    #[test]
    fn h8_the_section_holds_the_packages_name_and_version_or_the_name_given() {
        let version = env!("CARGO_PKG_VERSION");
        let of_package = identity(None).expect("the package has a name");
        assert_eq!(of_package, format!(r#"{{"name":"leasehold-guest-macros","version":"{version}"}}"#));
        let named = identity(Some(&parse_quote!("charge-card"))).expect("a good name");
        assert_eq!(named, format!(r#"{{"name":"charge-card","version":"{version}"}}"#));
        for bad in [r#""""#, r#""a b""#, r#""a\"b""#] {
            let literal: LitStr = syn::parse_str(bad).expect("a literal");
            assert!(identity(Some(&literal)).is_err(), "{bad}");
        }
    }
}

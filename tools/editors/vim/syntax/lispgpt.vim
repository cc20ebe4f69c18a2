" The language of lispgpt; tools/editors/generate.py writes this.
if exists("b:current_syntax") | finish | endif
syntax iskeyword @,48-57,_,-,!,?,*,+,=,<,>,%,.,/,&,#,|,$,192-255
syntax keyword lispgptSpecial and block block-id block-size call call! capability compilation compilation-cpu compilation-gpu cond config contract def defgradient defmacro defn defstruct do entry
syntax keyword lispgptSpecial error extern extern-fn fn for generate gguf grid-size hugging-face if inputs kernel launch let link-library loop module or quasiquote quote region require require-dialect
syntax keyword lispgptSpecial require-macros saturate schedule splice state tensor thread-id unquote update! use-dialect vararg-call weights when
syntax keyword lispgptConstant false nil true
syntax keyword lispgptType bf16 f16 f32 f64 i1 i16 i32 i64 i8 index
syntax keyword lispgptBuiltin != * + - -> -inf / : < <= = > >= abs adapt adapted added-rows all-weights assert at at-every-position batch batch-place call-with cast ceil ceil-div concat configured
syntax keyword lispgptBuiltin cons contraction cos count devices dim drawn drop dtype elementwise entry? erf every-position exp expm1 factors filter first floor fold fp8 get gradients in-place indices
syntax keyword lispgptBuiltin inf input-name input-value insert inserted int8 iq4_xs k_mix keys known-state known-weight last-multiplied layered list list? log log1p log2 map map? matching max merge
syntax keyword lispgptBuiltin min mind-padding mod multiplied multiplied-as mxfp4 new norm-weight not nth output packed-rows pi pow print print-i64 println q4_0 q4_k q5_k q6_k q8_0 quot range rank
syntax keyword lispgptBuiltin read-state recompute reduce reshape rest restrict-shapes results reverse round row-places? row-positions rsqrt scaled scan select shape shared sin slice spread sqrt
syntax keyword lispgptBuiltin state-as-stored state-sizes states-like stop-gradient str summed-as symbol take tanh tensor-type text-rows text-starts transpose type unpacked-rows weight-beside
syntax keyword lispgptBuiltin weight-dtype weight-name weight-shape whole whole-texts window without-window write-state write-state-at-positions
syntax keyword lispgptCore !=i *f *i +f +i -f -i /f /i <=i <i =i >=i >i argmax best-and-report best-token divided first-chosen identity maximum null-ptr null? ptr-at ptr-load ptr-offset ptr-store!
syntax keyword lispgptCore report-words sizes-as-text square sum
syntax match lispgptNumber /\v<-?(0[xX][0-9a-fA-F]+|\d+(\.\d+)?([eE][+-]?\d+)?)>/
syntax match lispgptKeyword /:[A-Za-z_][A-Za-z0-9_.\-!?*+=<>@%\/]*/
syntax match lispgptLabel /\^[A-Za-z_][A-Za-z0-9_.\-]*/
syntax region lispgptString start=/"/ skip=/\\./ end=/"/
syntax match lispgptComment /;.*$/
highlight default link lispgptSpecial Statement
highlight default link lispgptConstant Constant
highlight default link lispgptType Type
highlight default link lispgptBuiltin Function
highlight default link lispgptCore Function
highlight default link lispgptNumber Number
highlight default link lispgptKeyword Identifier
highlight default link lispgptLabel Label
highlight default link lispgptString String
highlight default link lispgptComment Comment
let b:current_syntax = "lispgpt"

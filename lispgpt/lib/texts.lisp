; What a loss over whole texts (`whole-texts`) keeps of a model for its gradient.  Outside of one, all of this is nothing.
(require-dialect tensor)

; x as a gradient and products read it: in whole texts in the config's activation-type, where it says one
(defn stored [x]
  (let [kind (if (text-rows) (configured "activation-type" f32) f32)]
    (if (= kind f32) x (cast x kind))))

; (f x …), of which a gradient over whole texts computes what is within again instead of keeping it
(defmacro again [f & xs]
  `(if (text-rows) (recompute ~f ~@xs) (~f ~@xs)))

; table [positions width] -> what it has for the place of each row of the texts, [rows width]
(defn place-rows [table]
  (let [[texts length] (text-rows)
        width (dim table 1)
        part (slice table [0 0] [length width])]
    (reshape (tensor [b texts t length c width] (at part t c)) [(* texts length) width])))
